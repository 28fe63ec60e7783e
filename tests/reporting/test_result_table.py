"""The result table: units, seeds, what is called out, where everything stands, and its CSV."""

import math
from io import StringIO
from typing import Any

import pandas as pd
import pytest

from tests.records.as_record import as_record
from tests.reporting.laboratory import COMMIT, SPEC, UNIGRAM_LOSS, Laboratory, quality
from txlbench.errors import UserError
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.schema import DenseExponent, Facts, RunState, Summary
from txlbench.reporting.experiment_results import read_results
from txlbench.reporting.provenance import Provenance
from txlbench.reporting.result_table import TableChoice, build_table, compact, table_frame
from txlbench.reporting.table import (
    Table,
    for_terminal,
    plain_text,
)


def table_of(directory: ExperimentDirectory) -> Table:
    results = read_results(directory)
    return build_table(results, Provenance.of(results, "txlbench ablate small.yaml"))


def cells(table: Table, header: str) -> dict[str, str]:
    """Row label -> cell of one column."""
    column = next(each for each in table.columns if each.header == header)
    return dict(zip(table.columns[0].cells, column.cells, strict=True))


def test_bytes_are_in_bpc_with_an_interval(laboratory: Laboratory) -> None:
    table = table_of(laboratory.finished())
    assert not any("ppl" in name and "paper" not in name for name in table.header)
    mean = (1.9 + 0.02 + 0.02) / math.log(2)
    assert cells(table, "bpc init")["xl"].startswith(f"*{mean:.3f} ± ")
    assert cells(table, "n")["xl"] == "3"


def test_words_are_in_perplexity_averaged_as_shown(laboratory: Laboratory) -> None:
    corpus = {"name": "mine", "path": "train.txt", "level": "word"}
    table = table_of(laboratory.finished(corpus=corpus))
    assert not any("bpc" in name for name in table.header)
    mean = sum(math.exp(1.9 + 0.01 * seed + 0.02) for seed in (1, 2, 3)) / 3
    assert cells(table, "ppl init")["xl"].startswith(f"*{mean:.2f} ± ")


def test_units_are_never_mixed_in_a_column(laboratory: Laboratory) -> None:
    words = {"name": "mine", "path": "train.txt", "level": "word"}
    rows = [{"label": "bytes"}, {"label": "words", "set": {"corpus": words}}]
    table = table_of(laboratory.finished(rows=rows))
    bpc, ppl = cells(table, "bpc best"), cells(table, "ppl best")
    assert bpc["bytes"]
    assert not bpc["words"]
    assert ppl["words"]
    assert not ppl["bytes"]
    assert not any("Δ" in name for name in table.header)


def test_one_seed_has_no_interval_and_no_difference(laboratory: Laboratory) -> None:
    table = table_of(laboratory.finished(seeds=[1]))
    assert "±" not in cells(table, "bpc init")["xl"]
    assert not any("Δ" in name for name in table.header)
    assert any("One seed" in line for line in table.footer)


def test_differences_are_paired_and_said_to_be_unresolved(laboratory: Laboratory) -> None:
    directory = laboratory.experiment()
    for line, config, run in laboratory.runs(directory):
        wobble = 0.05 * (config.seed == 2) if line.label == "xl, no memory" else 0.0
        level = 1.9 if line.label != "absolute" else 2.3
        laboratory.finish(run, config, line, loss=lambda _, v=level + wobble: v)
    found = cells(table_of(directory), "Δ bpc best")
    assert found["xl"] == ""
    assert found["xl, no memory"].endswith("(not resolved)")
    assert found["absolute"].startswith("+")
    assert "not resolved" not in found["absolute"]


def test_the_papers_numbers_have_columns_of_their_own(laboratory: Laboratory) -> None:
    table = table_of(laboratory.finished())
    assert cells(table, "paper: ppl_init")["xl"] == "27.02"
    assert cells(table, "paper: attention_length") == {
        "xl": "500",
        "xl, no memory": "",
        "absolute": "",
    }


def test_failures_stand_last_with_state_and_reason(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1])
    first, second, third = laboratory.runs(directory)
    laboratory.fail(first[2], first[1], first[0], RunState.DIVERGED, "loss became nan\nat step 7")
    laboratory.finish(second[2], second[1], second[0])
    del third
    table = table_of(directory)
    assert table.columns[0].cells == ("xl, no memory", "absolute", "xl")
    assert list(cells(table, "state").values()) == ["finished", "not run", "diverged"]
    assert "RuntimeError: loss became nan at step 7 (loop.py:12)" in cells(table, "notes")["xl"]


def test_a_failure_without_a_record_shows_the_last_log_line(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1])
    line, config, run = laboratory.runs(directory)[0]
    laboratory.start(run, config, line)
    run.log_file.write_text("step 1\nKilled by signal 9\n\n")
    run.set_state(RunState.FAILED)
    assert "Killed by signal 9" in cells(table_of(directory), "notes")["xl"]


def test_some_seeds_failed(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1, 2, 3])
    for line, config, run in laboratory.runs(directory):
        if line.label == "xl" and config.seed == 2:
            laboratory.fail(run, config, line, RunState.FAILED, "out of memory")
        else:
            laboratory.finish(run, config, line)
    table = table_of(directory)
    assert table.columns[0].cells[0] == "xl"
    assert cells(table, "n")["xl"] == "2"
    assert cells(table, "state")["xl"] == "2 finished, 1 failed"
    assert "seed 2 failed: RuntimeError: out of memory" in cells(table, "notes")["xl"]


@pytest.mark.parametrize(
    ("best", "called_out"),
    [(0.97 * UNIGRAM_LOSS, False), (0.985 * UNIGRAM_LOSS, True), (1.2 * UNIGRAM_LOSS, True)],
)
def test_what_stays_at_the_unigram_level_is_no_result(
    laboratory: Laboratory, best: float, called_out: bool
) -> None:
    directory = laboratory.experiment(evaluate={"attention_lengths": [64]})
    for line, config, run in laboratory.runs(directory):
        level = best - 0.02 - 0.4 / 64 if line.label == "xl, no memory" else quality(config)
        laboratory.finish(run, config, line, loss=lambda _, v=level: v)
    table = table_of(directory)
    row = "xl, no memory"
    assert (cells(table, "state")[row] == "did not train") is called_out
    assert (cells(table, "bpc best")[row].startswith("(")) is called_out
    assert (cells(table, "Δ bpc best")[row] == "") is called_out
    assert (table.columns[0].cells[-1] == row) is called_out
    if called_out:
        assert cells(table, "notes")[row] == "did not train: no better than a unigram model"


def test_seeds_that_did_not_train_are_named_and_left_out_of_means(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1, 2, 3], evaluate={"attention_lengths": [64]})
    for line, config, run in laboratory.runs(directory):
        stuck = line.label == "xl" and config.seed != 2
        laboratory.finish(run, config, line, loss=lambda c, v=stuck: 4.2 if v else quality(c))
    table = table_of(directory)
    only = next(run for _, config, run in laboratory.runs(directory) if config.seed == 2)
    best = only.read_summary().results[-1].best.loss
    assert cells(table, "bpc best")["xl"] == f"{best / math.log(2):.3f}"
    assert cells(table, "n")["xl"] == "1"
    assert cells(table, "state")["xl"] == "2 did not train, 1 finished"
    assert (
        cells(table, "notes")["xl"]
        == "seeds 1 and 3 did not train: no better than a unigram model; "
        "left out of means and intervals"
    )


def test_a_loss_far_above_a_uniform_guess_is_diverged(laboratory: Laboratory) -> None:
    directory = laboratory.experiment()
    for line, config, run in laboratory.runs(directory):
        huge = line.label == "xl, no memory"
        laboratory.finish(run, config, line, loss=lambda c, v=huge: 3e17 if v else quality(c))
    table = table_of(directory)
    assert cells(table, "state")["xl, no memory"] == "diverged"
    assert cells(table, "bpc best")["xl, no memory"] == ""
    assert "diverged: the loss is 3e+17 nats" in cells(table, "notes")["xl, no memory"]


def test_how_models_were_trained_is_said_and_what_differs_is_marked(laboratory: Laboratory) -> None:
    directory = laboratory.finished(seeds=[1, 2, 3])
    assert "Trained in fp32 on Abacus, 1 thread." in table_of(directory).footer
    for line, config, run in laboratory.runs(directory):
        if (line.label, config.seed) in (("xl", 1), ("absolute", 2), ("absolute", 3)):
            facts = run.read_facts()
            run.write_facts(facts.model_copy(update={"precision": "bf16", "threads": 2}))
    table = table_of(directory)
    found = cells(table, "notes")
    assert found["xl"] == "seeds 2 and 3 trained in fp32 on Abacus, 1 thread"
    assert "seeds 2 and 3 trained in bf16" not in found["absolute"]
    assert "seed 1 trained in fp32 on Abacus, 1 thread" in found["absolute"]
    assert any("rows and seeds that differ say so" in note for note in table.footer)


def test_absolute_positions_are_marked(laboratory: Laboratory) -> None:
    rows = [
        {"label": "memory", "set": {"model.encoding": "absolute"}},
        {"label": "long", "set": {"model.encoding": "absolute", "train.recurrence": False}},
    ]
    directory = laboratory.finished(rows=rows, evaluate={"attention_lengths": [32, 64]})
    found = cells(table_of(directory), "notes")
    assert found["memory"].startswith("incoherent")
    assert found["long"] == "extrapolated: best at 32, trained on positions up to 16"


@pytest.mark.parametrize(
    ("settings", "record", "said"),
    [
        ({"evaluate.tokens": 500}, {}, "tokens 500 (there 2000)"),
        ({"evaluate.split": "valid"}, {}, "split valid (there test)"),
        ({}, {"dtype": "fp32"}, "dtype fp32 (there bf16)"),
        ({}, {"tokens": 1900}, "tokens scored 1900 (there 2000)"),
        ({}, {"tokens": 1999}, None),
    ],
)
def test_rows_evaluated_differently_say_so(
    laboratory: Laboratory, settings: dict[str, Any], record: dict[str, Any], said: str | None
) -> None:
    rows = [{"label": "a"}, {"label": "b", "set": {"train.recurrence": False, **settings}}]
    directory = laboratory.experiment(rows=rows, seeds=[1])
    for line, config, run in laboratory.runs(directory):
        laboratory.finish(run, config, line, **(record if line.label == "b" else {}))
    table = table_of(directory)
    if said is None:
        assert "notes" not in table.header
    else:
        assert cells(table, "notes")["b"] == f"evaluated differently from 'a': {said}"


def test_results_under_other_evaluation_settings_do_not_count(laboratory: Laboratory) -> None:
    laboratory.finished()
    changed = {**SPEC["evaluate"], "tokens": 1000}
    table = table_of(laboratory.experiment(evaluate=changed))
    assert set(table.columns[0].cells) == {"xl", "xl, no memory", "absolute"}
    assert set(cells(table, "state").values()) == {"not evaluated"}
    assert "bpc init" not in table.header


def test_the_footer_says_how_and_whence(laboratory: Laboratory) -> None:
    directory = laboratory.finished()
    table = table_of(directory)
    how = " ".join(table.footer)
    for part in ("test of enwiki-sample", "2,000 tokens scored", "0 dropped", "bf16", "mem_len 0"):
        assert part in how
    assert COMMIT in table.source
    assert "txlbench ablate small.yaml" in table.source
    for _, _, run in laboratory.runs(directory):
        assert run.id in table.source


def test_the_footer_says_which_positions_half_loss_scores(laboratory: Laboratory) -> None:
    said = "Positions of each segment that init scores: "
    table = table_of(laboratory.finished(seeds=[1]))
    assert f"{said}1 to 16 (xl; xl, no memory); 9 to 16 (absolute)." in table.footer
    rows = [{"label": "half", "set": {"train.loss": "half"}}]
    table = table_of(laboratory.finished(seeds=[1], rows=rows, name="half"))
    assert f"{said}1 to 16, of which 9 on are trained (half)." in table.footer
    full = table_of(laboratory.finished(seeds=[1], rows=SPEC["rows"][:2], name="full"))
    assert not any(line.startswith(said) for line in full.footer)


def test_a_terminal_gets_what_differs(laboratory: Laboratory) -> None:
    table = for_terminal(table_of(laboratory.finished()), "source")
    assert "n" not in table.header
    assert "bpc init" in table.header
    assert any("n 3" in line for line in table.footer)


def test_a_terminal_gets_each_note_once(laboratory: Laboratory) -> None:
    rows = [
        {"label": f"{loss} loss", "set": {"model.encoding": "absolute", "train.loss": loss}}
        for loss in ("half", "full")
    ]
    table = for_terminal(table_of(laboratory.finished(rows=rows)), "source")
    assert table.footer.count("All rows: incoherent: absolute positions with memory") == 1


def test_an_edited_checkout_is_seen_in_the_short_form() -> None:
    provenance = Provenance("e", ("r",), ("0123456789ab+",), 1, "c")
    assert "commit 012345678+ " in provenance.short


def test_counts_are_short() -> None:
    counts = {None: "", 999: "999", 1000: "1k", 999_999: "1M", 1_024_000: "1.02M"}
    assert {count: compact(count) for count in counts} == counts


@pytest.mark.parametrize("width", [60, 80, 300])
def test_a_table_fits_its_terminal(laboratory: Laboratory, width: int) -> None:
    whole = table_of(laboratory.finished(rows=[*SPEC["rows"], {"label": "x" * 90}]))
    table = for_terminal(whole, "source", width)
    lines = plain_text(table).split("\n\n")[0].split("\n")
    left_out = [line for line in table.footer if line.startswith("Left out")]
    assert "bpc best" in table.header
    if width == 300:
        assert not left_out
        assert "paper: ppl_init" in table.header
    else:
        assert max(map(len, lines)) <= width
        assert "paper: ppl_init" in left_out[0]
        assert any("…" in cell for cell in table.columns[0].cells)


def test_columns_and_digits_are_chosen(laboratory: Laboratory) -> None:
    results = read_results(laboratory.finished(seeds=[1]))
    provenance = Provenance.of(results, "txlbench figures")
    table = build_table(results, provenance, TableChoice(("bpc best", "loss"), digits=1))
    assert table.header == ["row", "bpc best", "loss"]
    assert cells(table, "bpc best")["xl"] == "2.8"
    with pytest.raises(UserError, match="--columns bpb: no such column; columns: row, "):
        build_table(results, provenance, TableChoice(("bpb",)))


def test_csv_has_full_precision_and_names_its_source(laboratory: Laboratory) -> None:
    directory = laboratory.finished()
    results = read_results(directory)
    provenance = Provenance.of(results, "txlbench ablate small.yaml")
    text = table_frame(results, provenance).to_csv()
    frame = pd.read_csv(StringIO(text))
    row = frame[frame["row"] == "xl"].iloc[0]
    losses = [1.9 + 0.01 * seed + 0.02 for seed in (1, 2, 3)]
    assert row["bpc_init"] == pytest.approx(sum(losses) / 3 / math.log(2), rel=1e-15)
    assert row["runs"].split() == [run.id for _, _, run in laboratory.runs(directory)[:3]]
    assert row["commit"] == COMMIT
    assert row["command"] == "txlbench ablate small.yaml"


def frame_of(directory: ExperimentDirectory) -> pd.DataFrame:
    """The CSV, read again."""
    results = read_results(directory)
    text = table_frame(results, Provenance.of(results, "c")).to_csv(index=False)
    return pd.read_csv(StringIO(text), dtype=str, keep_default_na=False).set_index("row")


def test_counts_in_the_csv_stay_whole_beside_a_row_without_numbers(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1])
    line, config, run = laboratory.runs(directory)[0]
    laboratory.finish(run, config, line)
    frame = frame_of(directory)
    names = ["targets_trained", "parameters", "tgt_len", "tokens_scored"]
    assert list(frame.loc["xl", names]) == ["6400", "123456", "16", "2000"]
    assert list(frame.loc["absolute", names]) == [""] * 4
    assert frame.loc["xl", "exact"] == "False"


def test_every_setting_that_varies_has_a_column_in_the_csv(laboratory: Laboratory) -> None:
    rows = [
        {"label": "a", "set": {"train.lr": 0.01, "evaluate.attention_lengths": [8, 16]}},
        {"label": "b", "set": {"train.recurrence": False, "corpus": "text8"}},
    ]
    frame = frame_of(laboratory.finished(seeds=[1, 2], rows=rows))
    varied = list(frame.columns[: list(frame.columns).index("recurrence")])
    assert varied == [
        *("corpus.name", "train.mem_len", "train.lr", "evaluate.attention_lengths"),
    ]
    assert list(frame.loc["a", varied]) == ["enwiki-sample", "16", "0.01", "8 16"]
    assert list(frame.loc["b", varied]) == ["text8", "0", "0.00025", "8 16 32 64"]


def test_attention_lengths_of_seeds_are_a_set(laboratory: Laboratory) -> None:
    directory = laboratory.finished(rows=SPEC["rows"][:1])
    for (_, _, run), length in zip(laboratory.runs(directory), (16, 64, 16), strict=True):
        summary = run.read_summary().content
        summary["results"][0]["attention_length"] = length
        run.write_summary(as_record(Summary, summary))
    assert cells(table_of(directory), "attention length")["xl"] == "16, 64"
    assert frame_of(directory).loc["xl", "attention_lengths"] == "16 64 16"


def test_predictors_stand_beside_the_results(laboratory: Laboratory) -> None:
    """Memory 16 and segments of 16: distance 24 is met half as often as 1; without memory, 8."""
    directory = laboratory.finished(rows=SPEC["rows"])
    table = table_of(directory)
    assert cells(table, "distance met") == {"xl": "24", "xl, no memory": "8", "absolute": "12"}
    assert "L²M exponent" not in table.header
    assert any(line.startswith("Distance met: the largest") for line in table.footer)
    for (_, _, run), value in zip(laboratory.runs(directory), (0.4, 0.5, 0.6), strict=False):
        run.write_exponent(as_record(DenseExponent, {"value": value}))
    table = table_of(directory)
    assert cells(table, "L²M exponent")["xl"] == "0.50 ± 0.25"
    assert cells(table, "L²M exponent")["absolute"] == ""
    frame = frame_of(directory)
    assert float(frame.loc["xl", "l2m_exponent"]) == pytest.approx(0.5)
    assert int(frame.loc["xl", "distance_met"]) == 24


def test_the_share_of_unknown_words_is_said(laboratory: Laboratory) -> None:
    corpus = {"name": "mine", "path": "train.txt", "level": "word"}
    directory = laboratory.finished(corpus=corpus, seeds=[1])
    assert not any("<unk>" in line for line in table_of(directory).footer)
    for _, _, run in laboratory.runs(directory):
        facts = run.read_facts().content
        facts["corpus"] |= {"unk": {"test": 102}, "tokens": {"test": 1000}}
        run.write_facts(as_record(Facts, facts))
    said = "10.2% of the tokens of mine are <unk>; other vocabularies do not compare."
    assert said in table_of(directory).footer
    assert frame_of(directory).loc["xl", "unk_share"] == "0.102"
