"""Reading records: what is missing, and what is broken."""

import pytest

from tests.reporting.laboratory import Laboratory
from txlbench.errors import UserError
from txlbench.files import write_json
from txlbench.reporting.report import report
from txlbench.reporting.results import read_results


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
    summary = run.read_summary()
    del summary["results"][0][missing]
    run.write_summary(summary)
    with pytest.raises(UserError, match=r"summary\.json: not a run's summary") as error:
        read_results(directory)
    assert missing in str(error.value)


def test_a_run_whose_process_is_gone_counts_as_interrupted(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1])
    line, config, run = laboratory.runs(directory)[0]
    laboratory.start(run, config, line)
    assert read_results(directory).runs[0].state == "running"
    status = {**run.read_status(), "pid": 2**22 + 1}  # beyond the largest process id of Linux
    write_json(run.path / "status.json", status)
    assert read_results(directory).runs[0].state == "interrupted"
