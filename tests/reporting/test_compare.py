"""Which rows are compared, on what, and what is said of each pair."""

import json
import math

import numpy as np
import pytest

from tests.reporting.laboratory import Laboratory, quality
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.schema import Facts, RunState
from txlbench.reporting.compare import comparisons, headline
from txlbench.reporting.comparison import Comparison
from txlbench.reporting.experiment_results import read_results
from txlbench.reporting.report import report

ROWS = [
    {"label": "good", "set": {"train.lr": 0.001}},
    {"label": "fair", "set": {"train.lr": 0.002}},
    {"label": "poor", "set": {"train.lr": 0.003}},
]
LEVELS = {"good": 1.9, "fair": 1.95, "poor": 2.4}
TEXT = np.random.default_rng(7).normal(0, 0.2, 80)
"""What blocks of the text add to every row's loss."""


class Grid:
    """Three rows whose runs have losses by block, with noise of seeds and of single blocks."""

    def __init__(self, laboratory: Laboratory, seed_noise: float = 0.003, **changes) -> None:
        self.laboratory = laboratory
        self.directory = laboratory.experiment(**{"rows": ROWS, **changes})
        self.seed_noise = seed_noise
        self.rng = np.random.default_rng(3)

    def finish(self, targets: str = "abc", skip=(), **record) -> ExperimentDirectory:
        """Finishes every run but those of `skip`, pairs of a label and a seed."""
        for line, config, run in self.laboratory.runs(self.directory):
            loss = LEVELS[line.label] + self.rng.normal(0, self.seed_noise)
            blocks = loss + TEXT + self.rng.normal(0, 0.02, len(TEXT))
            if (line.label, config.seed) in skip:
                args = run, config, line, RunState.DIVERGED
                self.laboratory.fail(*args, "loss became nan")
                continue
            kept = {"targets": targets, "losses": blocks.round(6).tolist()}
            kept = {"blocks": kept, **record}
            self.laboratory.finish(run, config, line, lambda _, b=blocks: b.mean(), **kept)
        return self.directory


def best(directory: ExperimentDirectory) -> Comparison:
    (unit,) = {unit for unit, _ in comparisons(read_results(directory))}
    return comparisons(read_results(directory))[unit, "best"]


def said(found: Comparison, one: str, other: str) -> str:
    return found.sentence(found.pair(one, other))


def test_a_row_that_beats_all_others_wins(laboratory):
    found = best(Grid(laboratory).finish())
    assert (found.winner, found.rows, found.tested) == ("good", ("good", "fair", "poor"), 3)
    pair = found.pair("fair", "good")
    assert (pair.lower, pair.verdict, pair.seeds, pair.covers_tokens) == (
        *("good", "resolved", (1, 2, 3)),
        True,
    )
    assert pair.difference == pytest.approx(0.05 / math.log(2), abs=0.01)
    assert said(found, "good", "poor").startswith("good beats poor by 0.7")
    assert "good (2.7" in found.headline
    assert "beats each of the 2 other rows, the nearest, fair, by 0.0" in found.headline
    assert found.headline.endswith("bpc (3 seeds, Holm over 3 pairs).")


def test_what_is_not_resolved_says_how_many_seeds_would(laboratory):
    found = best(Grid(laboratory, seed_noise=0.03).finish())
    assert found.winner is None
    pair = found.pair("good", "fair")
    assert (pair.verdict, found.pair("good", "poor").verdict) == ("not resolved", "resolved")
    assert pair.seeds_needed > 3
    assert f"{pair.seeds_needed} seeds would, if difference" in said(found, "good", "fair")
    assert "does not beat fair: 0.0" in found.headline


def test_two_seeds_and_many_rows_are_corrected_for_the_number_of_pairs(laboratory):
    found = best(Grid(laboratory, seeds=[1, 2]).finish())
    for pair in found.pairs:
        assert pair.p <= pair.p_holm <= 3 * pair.p
        assert (pair.verdict == "resolved") is (pair.p_holm <= 0.05)
    assert max(pair.p_holm for pair in found.pairs) >= max(pair.p for pair in found.pairs)


def test_one_seed_covers_tokens_alone_and_names_no_winner(laboratory):
    found = best(Grid(laboratory, seeds=[1]).finish())
    pair = found.pair("good", "poor")
    assert (found.winner, pair.verdict, pair.p) == (None, "one seed", None)
    assert 0 < pair.half_width < pair.difference
    assert said(found, "good", "poor").endswith("bpc (1 seed, over tokens alone)")
    assert "with one seed no row is said to win" in found.headline


def test_records_of_earlier_versions_are_paired_by_seed_alone(laboratory):
    found = best(Grid(laboratory).finish(blocks=None))
    pair = found.pair("good", "poor")
    assert not pair.covers_tokens
    assert said(found, "good", "poor").endswith("bpc (3 seeds, over seeds alone)")


def test_failed_seeds_are_left_out_and_named(laboratory):
    found = best(Grid(laboratory).finish(skip={("good", 2), ("fair", 3)}))
    assert found.pair("good", "fair").seeds == (1,)
    assert found.pair("good", "poor").seeds == (1, 3)
    assert found.left_out == ("seed 2 of good (diverged)", "seed 3 of fair (diverged)")
    assert found.winner is None


def test_rows_without_a_common_seed_are_not_paired(laboratory):
    found = best(Grid(laboratory, seeds=[1, 2]).finish(skip={("good", 2), ("fair", 1)}))
    assert said(found, "good", "fair") == (
        "good and fair are not compared: they have no seed in common"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"evaluate.tokens": 500}, "scored on 500 and on 2,000 tokens"),
        ({"evaluate.split": "valid"}, "scored on valid and on test"),
        ({"evaluate.batch_size": 5}, "scored on different 2,000 tokens of test"),
        ({"corpus": "text8"}, "their tokens are of different kinds"),
        ({"corpus": "enwik8"}, "they were measured on different texts"),
    ],
)
def test_rows_scored_on_different_tokens_are_not_paired(laboratory, changes, reason):
    """By the fingerprint of their targets where it is known, else by their settings."""
    rows = [*ROWS[:1], {"label": "fair", "set": {"train.lr": 0.5, **changes}}]
    directory = laboratory.experiment(rows=rows)
    for line, config, run in laboratory.runs(directory):
        tokens = config.evaluate.tokens
        level = LEVELS[line.label]
        laboratory.finish(run, config, line, loss=lambda _, v=level: v, tokens=tokens)
        if config.corpus.name in ("text8", "enwik8"):
            facts = run.read_facts()
            corpus = facts.corpus.model_copy(update={"checksum": "def456"})
            run.write_facts(facts.model_copy(update={"corpus": corpus}))
    found = best(directory)
    pair = found.pair("good", "fair")
    assert pair.verdict == "not compared"
    assert set(reason.split()) <= set(said(found, "good", "fair").split())
    assert found.winner is None


def test_equal_fingerprints_decide_over_settings(laboratory):
    rows = [*ROWS[:1], {"label": "fair", "set": {"train.lr": 0.5, "evaluate.batch_size": 5}}]
    grid = Grid(laboratory, rows=rows)
    assert best(grid.finish()).pair("good", "fair").verdict == "resolved"
    grid.finish(targets="other")
    for line, config, run in laboratory.runs(grid.directory):
        if line.label == "good":
            laboratory.finish(run, config, line, blocks={"targets": "x", "losses": [1.9, 1.9]})
    assert best(grid.directory).pair("good", "fair").verdict == "not compared"


def test_labels_that_share_their_runs_do_not_beat_each_other(laboratory):
    rows = [{"label": "good"}, {"label": "fair"}]
    found = best(Grid(laboratory, rows=rows).finish())
    assert (found.pair("good", "fair").p, found.winner) == (1.0, None)


def test_perplexities_are_compared_as_they_are_shown(laboratory):
    corpus = {"name": "mine", "path": "train.txt", "level": "word"}
    found = best(Grid(laboratory, corpus=corpus).finish())
    pair = found.pair("good", "poor")
    shown = dict(zip(found.rows, found.means, strict=True))
    assert found.unit == "ppl"
    assert pair.difference == pytest.approx(shown["poor"] - shown["good"], rel=1e-9)
    assert said(found, "good", "poor").startswith("good beats poor by 4.")


def test_what_did_not_train_is_not_compared(laboratory):
    directory = laboratory.experiment()
    for line, config, run in laboratory.runs(directory):
        stuck = line.label == "absolute"
        laboratory.finish(run, config, line, loss=lambda c, v=stuck: 3.5 if v else quality(c))
    found = best(directory)
    assert found.rows == ("xl", "xl, no memory")
    assert found.left_out == ("absolute (did not train)",)


def test_no_results_are_no_comparison(laboratory):
    directory = laboratory.experiment()
    assert headline(read_results(directory)) == "No row has results that can be compared."


def test_tables_hold_the_comparison(laboratory):
    directory = Grid(laboratory).finish()
    report(directory, "txlbench figures")
    table = json.loads(directory.table("json").read_text())
    assert table["schema"] == "txlbench.table/1"
    (found,) = [each for each in table["comparisons"] if each["measure"] == "best"]
    assert found["winner"] == "good"
    assert found["headline"] in directory.table("md").read_text()
    rows = {row["row"]: row for row in table["rows"]}
    assert [rows[name]["bpc_best_beats_all"] for name in ("good", "fair")] == [True, False]
    pair = next(
        each for each in found["pairs"] if {each["lower"], each["higher"]} == {"good", "poor"}
    )
    assert rows["poor"]["bpc_best_difference"] == pytest.approx(pair["difference"])
    assert rows["poor"]["bpc_best_difference_resolved"] is True
    assert "| \\*2.7" in directory.table("md").read_text()


def test_a_lost_checksum_is_no_other_text(laboratory):
    directory = Grid(laboratory).finish()
    for line, _, run in laboratory.runs(directory):
        if line.label == "good":
            run.write_facts(Facts())
    assert best(directory).pair("good", "fair").verdict == "resolved"


def test_the_headline_says_only_of_rows_that_are_not_compared_that_they_are_not(laboratory):
    directory = Grid(laboratory, seeds=[1]).finish()
    for line, _, run in laboratory.runs(directory):
        if line.label == "poor":
            facts = run.read_facts()
            corpus = facts.corpus.model_copy(update={"checksum": "def456"})
            run.write_facts(facts.model_copy(update={"corpus": corpus}))
    found = best(directory)
    refused = [pair for pair in found.pairs if pair.verdict == "not compared"]
    assert all("poor" in pair.labels for pair in refused)
    assert found.headline.endswith(
        "is not compared with poor: they were measured on different texts."
    )
    assert "fair" not in found.headline.partition("not compared")[2]
