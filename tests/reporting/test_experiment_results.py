"""Reading records: what is missing, and what is broken."""

import pytest

from tests.reporting.laboratory import Laboratory
from txlbench.files import write_json
from txlbench.records.claim import claimed
from txlbench.reporting.experiment_results import read_results
from txlbench.reporting.report import report


def test_an_experiment_that_never_ran(laboratory: Laboratory) -> None:
    directory = laboratory.experiment()
    written = report(directory, "txlbench figures")
    assert written.figures == ()
    assert "not run" in written.text
    assert directory.table("csv").exists()


@pytest.mark.parametrize("missing", ["init", "best", "sweep", "attention_length"])
def test_a_mangled_summary_is_named(laboratory: Laboratory, missing: str) -> None:
    directory = laboratory.finished(seeds=[1])
    run = laboratory.runs(directory)[0][2]
    summary = run.read_summary().content
    del summary["results"][0][missing]
    write_json(run.path / "summary.json", summary)
    bad, *others = read_results(directory).runs
    assert (bad.state, bad.outcome) == ("damaged", None)
    assert f"summary.json: results.0.{missing}: missing" in bad.error
    assert {other.state for other in others} == {"finished"}


def test_a_run_that_nobody_works_on_counts_as_interrupted(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1])
    line, config, run = laboratory.runs(directory)[0]
    run.path.mkdir(parents=True)
    with claimed(run.path):
        laboratory.start(run, config, line)
        assert read_results(directory).runs[0].state == "running"
    assert read_results(directory).runs[0].state == "interrupted"
