"""What single settings do, in words: numbers, direction, doubt, and what is not comparable."""

import pytest

from txlbench.reporting.compare import comparisons
from txlbench.reporting.experiment_results import read_results
from txlbench.reporting.pages.contrasts import contrasts, setting_remarks
from txlbench.reporting.rows import build_rows

LOSSES = {
    ("xl", True): 1.9,
    ("xl", False): 2.0,
    ("shaw", True): 1.95,
    ("shaw", False): 2.04,
    ("absolute", False): 2.2,
}
LN2 = 0.6931471805599453


def rows_of(*combinations, loss="full"):
    return [
        {
            "label": f"{name} {memory} {loss}",
            "set": {"model.encoding": name, "train.recurrence": memory, "train.loss": loss},
        }
        for name, memory in combinations
    ]


def remarks(laboratory, rows, seeds=(1,), scatter=0.0):
    directory = laboratory.experiment(rows=rows, seeds=list(seeds))
    for line, config, run in laboratory.runs(directory):
        loss = LOSSES[config.model.encoding, config.train.recurrence]
        loss += scatter * config.seed * config.train.recurrence
        laboratory.finish(run, config, line, loss=lambda _, loss=loss: loss)
    results = read_results(directory)
    compared = {measure: found for (_, measure), found in comparisons(results).items()}
    found = setting_remarks(results, build_rows(results), compared)
    return {remark.name: remark.sentences for remark in found}


def test_two_values_are_compared_where_nothing_else_differs(laboratory):
    found = remarks(laboratory, rows_of(*LOSSES))
    (sentence,) = found["Recurrence: yes instead of no"]
    lower, lower_shaw = (f"{gain / LN2:.3f}" for gain in (0.1, 0.09))
    assert sentence.startswith(
        f"Lowers the loss by {lower} bpc (encoding xl) and {lower_shaw} bpc (encoding shaw); in "
        "the regime of training (init) lowers the loss by "
    )
    first, second = found["Encoding"]
    assert first.startswith("With recurrence: xl 2.7")
    assert first.endswith(f"shaw +{0.05 / LN2:.3f}.")
    assert second.startswith("Without recurrence: xl 2.9")
    best_at_16 = 0.2 + 0.4 / 16 - 0.4 / 64
    assert second.endswith(f"absolute +{best_at_16 / LN2:.3f}.")


def test_of_many_pairs_the_smallest_and_the_largest_difference_are_said(laboratory):
    rows = [
        {"label": f"{memory} {lr}", "set": {"train.recurrence": memory, "train.lr": lr}}
        for memory in (True, False)
        for lr in (1e-3, 2e-3, 3e-3, 4e-3)
    ]
    (sentence,) = remarks(laboratory, rows)["Recurrence: yes instead of no"]
    gain = f"{0.1 / LN2:.3f}"
    assert sentence.startswith(f"Lowers the loss by {gain} to {gain} bpc in 4 of 4 pairs; in ")


def test_no_difference_has_no_sign(laboratory):
    rows = [{"label": f"{lr}", "set": {"train.lr": lr}} for lr in (1e-3, 2e-3)]
    ((sentence,),) = remarks(laboratory, rows).values()
    assert sentence.startswith("Lowers the loss by 0.000 ")


def test_init_is_left_out_where_other_positions_are_scored(laboratory):
    rows = rows_of(("absolute", False)) + rows_of(("absolute", False), loss="half")
    (sentence, *_) = remarks(laboratory, rows)["Loss: half instead of full"]
    assert "init" not in sentence


def test_seeds_give_intervals_and_doubt(laboratory):
    rows = rows_of(("xl", True), ("xl", False))
    (clear,) = remarks(laboratory, rows, seeds=(1, 2, 3), scatter=0.001)[
        "Recurrence: yes instead of no"
    ]
    assert " ± 0.0" in clear
    assert "not resolved" not in clear
    (doubt,) = remarks(laboratory, rows, seeds=(1, 2, 3), scatter=0.1)[
        "Recurrence: yes instead of no"
    ]
    assert ", not resolved" in doubt


def test_rows_that_differ_in_more_are_not_compared(laboratory):
    rows = rows_of(("xl", True), ("absolute", False))
    assert remarks(laboratory, rows) == {}


@pytest.mark.parametrize("seeds", [(1,), (1, 2)])
def test_a_grid_is_compared_as_rows_are(laboratory, seeds):
    grid = {"model.encoding": ["xl", "shaw"], "train.recurrence": [True, False]}
    directory = laboratory.finished(rows=[], grid=grid, seeds=list(seeds))
    results = read_results(directory)
    found = contrasts(results, build_rows(results))
    assert [beside for beside, _ in found["model.encoding"]] == [
        "with recurrence",
        "without recurrence",
    ]
    assert [list(alike) for _, alike in found["train.recurrence"]] == [["yes", "no"]] * 2


def test_what_the_table_does_not_compare_is_no_contrast(laboratory):
    directory = laboratory.experiment(rows=rows_of(*LOSSES), seeds=[1])
    for line, config, run in laboratory.runs(directory):
        laboratory.finish(run, config, line)
        if line.label.startswith("xl False"):
            facts = run.read_facts()
            corpus = facts.corpus.model_copy(update={"checksum": "def456"})
            run.write_facts(facts.model_copy(update={"corpus": corpus}))
    results = read_results(directory)
    compared = {measure: found for (_, measure), found in comparisons(results).items()}
    found = setting_remarks(results, build_rows(results), compared)
    said = {remark.name: remark.sentences for remark in found}
    (sentence,) = said["Recurrence: yes instead of no"]
    assert "encoding xl" not in sentence
    assert said["Encoding"][1].startswith("Without recurrence: shaw ")
