"""Runs with a plug-in: whoever works on the job has it from the job, not from a path."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.config.test_plugins import ENCODING
from tests.plugged import forgotten, written
from tests.runs.in_process import run_suite
from tests.runs.trial import plan_of, prepared_job, snapshot, write_spec
from txlbench.commands.names import find_run, is_row
from txlbench.config.plugins import load_files, loaded_plugins
from txlbench.errors import ExitStatus, MissingPlugin, UserError
from txlbench.machine import worker_environment
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.runs.status import spares, status_lines
from txlbench.runs.train_run import execute
from txlbench.runs.worker_process import WorkerProcess


@pytest.fixture
def job(tmp_path):
    """A job of a run with an encoding of a plug-in whose file is gone, which nobody knows here."""
    with forgotten():
        path = written(tmp_path, ENCODING, "gone.py")
        load_files([path])
        write_spec({"model.encoding": "nothing"})
        (run,) = plan_of(out=Path("results/trial"))
        made = replace(prepared_job(run), plugins=loaded_plugins())
        path.unlink()
    with forgotten():
        yield made


def test_a_job_brings_its_plugin_and_the_run_records_its_source(job):
    run = RunDirectory(job.directory)
    with pytest.raises(UserError, match=r"unknown encoding 'nothing'.* or give --plugin"):
        run.read_config()
    assert execute(job, lambda: False) is RunState.FINISHED
    assert run.read_config().model.plugin == job.plugins[0].sha256


@pytest.mark.full
def test_a_worker_process_has_it_too(job):
    worker = WorkerProcess(job, worker_environment(1, os.environ))
    worker.begin()
    worker.process.wait(120)
    assert worker.outcome() is RunState.FINISHED


OUT = ExperimentDirectory(Path("results/trial"))
ROWS = [
    {"label": "plain", "set": {"model.encoding": "xl"}},
    {"label": "plugged", "set": {"model.encoding": "nothing"}},
]


@pytest.fixture
def two_rows(one_process, tmp_path):
    """An experiment with a row of a plug-in that is not known any more, both rows trained."""
    with forgotten():
        load_files([written(tmp_path, ENCODING)])
        write_spec(rows=ROWS)
        assert run_suite()[0].status is ExitStatus.DONE
    before = snapshot(OUT.runs_directory)
    with forgotten():
        yield OUT
    assert snapshot(OUT.runs_directory) == before


def test_a_row_needs_its_own_plugins_only(two_rows):
    with pytest.raises(MissingPlugin, match=r"spec.yaml:\d+: model.encoding: .*row 'plugged'"):
        run_suite()
    outcome, watched = run_suite(only=("plain",))
    assert outcome.status is ExitStatus.DONE
    assert "plain" in outcome.table
    assert any("left out, as a plug-in is not given" in line for line in watched.warnings)
    assert "left out, as a plug-in is not given" in two_rows.table("md").read_text()
    for pattern in ("plugged", "pl*"):
        with pytest.raises(MissingPlugin, match="or give --plugin"):
            run_suite(only=(pattern,))


def test_a_model_of_a_row_needs_its_own_plugins_only(two_rows):
    assert is_row("trial/plain")
    assert find_run("trial/plain").read_label() == "plain"
    assert is_row("trial/plugged")
    with pytest.raises(MissingPlugin, match="row 'plugged'"):
        find_run("trial/plugged")


def test_runs_of_unknown_rows_are_neither_foreign_nor_deleted(two_rows):
    plain, plugged = status_lines(two_rows)
    assert plain[0].startswith("plain (seed 1): finished")
    assert "plugged: not known here" in plugged[0]
    assert "or give --plugin" in plugged[0]
    with pytest.raises(MissingPlugin):
        list(spares(two_rows))
