"""Runs with a plug-in: whoever works on the job has it from the job, not from a path."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.config.test_plugins import ENCODING
from tests.plugged import forgotten, written
from tests.runs.trial import plan_of, prepared_job, write_spec
from txlbench.config.plugins import load_files, loaded_plugins
from txlbench.errors import UserError
from txlbench.machine import worker_environment
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
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
