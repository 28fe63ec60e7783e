"""The page of an experiment: its answer, its failed runs with their last lines, what it lists."""

import re

from tests.reporting.laboratory import COMMIT, quality
from tests.reporting.pages.parsed import Parsed
from tests.reporting.recl_records import write_record
from txlbench.files import read_json, write_json
from txlbench.records.schema import RunState
from txlbench.reporting.experiment_results import read_results
from txlbench.reporting.pages.experiment_findings import experiments_of, parts_about
from txlbench.reporting.pages.experiment_page import experiment_page
from txlbench.reporting.pages.page import render
from txlbench.reporting.provenance import Provenance
from txlbench.reporting.report import report
from txlbench.reporting.result_table import build_table


def page_of(directory):
    """The page without figures, which take long to draw."""
    results = read_results(directory)
    provenance = Provenance.of(results, "txlbench report")
    return experiment_page(results, provenance, build_table(results, provenance), [])


def remarks(page):
    return {remark.name: " ".join(remark.sentences) for a in page.answers for remark in a.remarks}


def part_of(page, title):
    return next(part for part in page.parts if part.title == title)


def test_the_answer_names_the_best_and_what_is_not_resolved(laboratory):
    page = page_of(laboratory.finished(seeds=[1]))
    assert page.heading == "small"
    assert page.lead.startswith("3 rows, 3 of 3 runs finished; loss on the test split of enwiki")
    found = remarks(page)
    assert re.match(r"xl, 2\.\d{3} bpc; next xl, no memory, 2\.\d{3} \(\+0\.144\); last absolute, ",
                    found["Lowest loss"])  # fmt: skip
    assert found["Not resolved"].startswith("All of these differences: one seed each, so none is ")
    assert part_of(page, "Pairs of rows").is_empty
    assert page.summary.startswith("Lowest loss: xl, 2.")


def test_several_seeds_are_tested_pair_by_pair(laboratory):
    directory = laboratory.experiment()
    for line, config, run in laboratory.runs(directory):
        scatter = 0.2 * (config.seed == 2) * (line.label == "xl, no memory")
        laboratory.finish(run, config, line, loss=lambda c, s=scatter: quality(c) + s)
    page = page_of(directory)
    found = remarks(page)
    assert [row[:2] for row in part_of(page, "Pairs of rows").tables[0].rows] == [
        ["xl", "xl, no memory"],
        ["xl", "absolute"],
        ["xl, no memory", "absolute"],
    ]
    assert "1 of 3 pairs of rows differ at p ≤ 0.05, after Holm's correction." in found["Tested"]
    assert found["Not resolved"].startswith("xl and xl, no memory: 0.2")
    assert "; not resolved; " in found["Not resolved"]
    assert "one seed" not in found["Not resolved"]


def test_the_paper_s_order_is_compared(laboratory):
    rows = [
        {"label": f"lr {k}", "set": {"train.lr": 1e-3 * k}, "paper": {"ppl_best": ppl}}
        for k, ppl in ((1, 20.0), (2, 22.0), (3, 21.0))
    ]
    directory = laboratory.experiment(rows=rows, seeds=[1])
    for line, config, run in laboratory.runs(directory):
        laboratory.finish(run, config, line, loss=lambda config: 1.5 + 100 * config.train.lr)
    assert remarks(page_of(directory))["The paper"] == (
        "2 of 3 pairs of rows stand in the paper's order; not lr 2 and lr 3."
    )


def test_a_failed_run_is_shown_with_its_last_lines(laboratory):
    directory = laboratory.experiment(seeds=[1])
    first, second, _ = laboratory.runs(directory)
    laboratory.finish(first[2], first[1], first[0])
    laboratory.fail(second[2], second[1], second[0], RunState.FAILED, "out of <memory>")
    lines = [f"line {number}" for number in range(50)]
    second[2].error_file.write_text("\n".join([*lines, "RuntimeError: out of <memory>", ""]))
    page = page_of(directory)
    assert remarks(page)["Did not finish"] == "xl, no memory (seed 1) failed."
    assert page.lead.startswith("3 rows, 1 of 3 runs finished")
    text = Parsed(render(page)).text
    assert "line 49\nRuntimeError: out of <memory>" in text
    assert "line 30" not in text


def test_nothing_measured_is_said_so(laboratory):
    page = page_of(laboratory.experiment())
    assert remarks(page) == {"Loss": "Nothing was measured yet in bits per character."}
    assert Parsed(render(page)).text.count("Speed of training") == 0


def test_it_says_how_each_number_was_obtained_and_what_was_set(laboratory):
    directory = laboratory.finished(seeds=[1, 2])
    text = Parsed(render(page_of(directory))).text
    for _, _, run in laboratory.runs(directory):
        assert run.id in text
    assert COMMIT in text
    (table,) = part_of(page_of(directory), "How each number was obtained").tables
    cells = dict(zip(table.header, table.rows[0], strict=True))
    assert (cells["row"], cells["seed"], cells["mem len"], cells["stride"]) == (
        "xl",
        "1",
        "16",
        "16",
    )
    assert table.footer[0].startswith("In every row: split test, tgt len 16, batch size 10, ")
    assert "train.max_step 100" in text
    assert "command: txlbench report" in text


def test_its_models_recl_stands_on_it(laboratory):
    directory = laboratory.finished(seeds=[1])
    run = laboratory.runs(directory)[0][2]
    finding = directory.path.parent / "recl-1"
    write_record(finding)
    assert parts_about(directory, [run.id]) == []
    record = read_json(finding / "recl.json")
    record["models"]["XL"]["path"] = str(run.losses / "abc.npz")
    write_json(finding / "recl.json", record)
    (part,) = parts_about(directory, [run.id])
    assert part.title == "Relative effective context length (recl-1)"
    assert part.answers[0].remarks[0].name == "On all tokens"
    assert any(header.startswith("above null") for header in part.tables[0].header)
    assert [each.path for each in experiments_of(finding / "recl.json")] == [directory.path]
    (finding / "recl.json").write_text("[]")
    assert parts_about(directory, [run.id]) == []


def test_it_is_written_with_figures_and_listed(laboratory):
    directory = laboratory.finished(seeds=[1])
    written = report(directory, "txlbench ablate")
    text = written.page.read_text()
    assert text.count("<figure>") == 4
    assert len(text) < 3e6
    parsed = Parsed(text)
    assert len(parsed.ids) == len(set(parsed.ids))
    index = (directory.path.parent / "index.html").read_text()
    assert 'href="small/report.html"' in index
    assert parsed.names["description"].startswith("Lowest loss: xl")
    assert "Lowest loss: xl, 2." in index


def stuck(laboratory, *labels, **changes):
    """An experiment with one seed, of whose rows those with `labels` stay at the unigram level."""
    directory = laboratory.experiment(seeds=[1], **changes)
    for line, config, run in laboratory.runs(directory):
        level = 3.5 if line.label in labels else quality(config)
        laboratory.finish(run, config, line, loss=lambda _, v=level: v)
    return directory


def test_nothing_is_said_of_losses_where_no_row_trained(laboratory):
    page = page_of(stuck(laboratory, "xl", "xl, no memory", "absolute"))
    assert "3 of 3 runs finished; 3 of 3 rows did not train" in page.lead
    assert remarks(page) == {
        "Did not train": "xl; xl, no memory; absolute: no better than a unigram model, so their "
        "losses are not compared."
    }
    assert page.summary.startswith("Did not train: ")


def test_what_did_not_train_is_named_and_not_compared(laboratory):
    page = page_of(stuck(laboratory, "xl, no memory"))
    assert "; 1 of 3 rows did not train" in page.lead
    found = remarks(page)
    assert found["Did not train"].startswith("xl, no memory: no better than a unigram model")
    assert all("no memory" not in text for name, text in found.items() if name != "Did not train")
    assert not any(name.startswith("Recurrence") for name in found)


def test_a_finding_mostly_of_other_models_stands_elsewhere(laboratory):
    directory = laboratory.finished(seeds=[1])
    run = laboratory.runs(directory)[0][2]
    finding = directory.path.parent / "recl-1"
    write_record(finding, groups=(("XL", "LSTM", "Vanilla"),))
    path, record = finding / "recl.json", read_json(finding / "recl.json")
    record["models"]["XL"]["path"] = str(run.losses / "abc.npz")
    write_json(path, record)
    assert parts_about(directory, [run.id]) == []
    assert list(experiments_of(path)) == []
    record["models"]["LSTM"]["path"] = str(run.losses / "def.npz")
    write_json(path, record)
    assert len(parts_about(directory, [run.id])) == 1
    del record["models"]["LSTM"]["path"]
    record["models"]["LSTM"] |= {"path": None}
    record["models"]["XL"] |= {"path": None, "reference": "small/xl"}
    write_json(path, record)
    assert len(parts_about(directory, [run.id])) == 1


def test_rows_of_another_text_are_left_out_of_words_as_of_the_table(laboratory):
    directory = laboratory.finished(seeds=[1])
    *_, (_, _, run) = laboratory.runs(directory)
    facts = run.read_facts()
    corpus = facts.corpus.model_copy(update={"checksum": "def456"})
    run.write_facts(facts.model_copy(update={"corpus": corpus}))
    found = remarks(page_of(directory))
    assert "absolute" not in found["Lowest loss"]
    assert (
        "xl and absolute are not compared: they were measured on different texts"
        in (found["Not resolved"])
    )
