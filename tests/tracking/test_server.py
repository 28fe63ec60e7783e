"""A real MLflow server: it stops midway, stays away, or accepts and never answers."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from mlflow.tracking import MlflowClient

from tests.cli.trial import call, environment
from tests.reporting.laboratory import Laboratory
from tests.runs.trial import plan_of, write_spec, write_text
from txlbench.records.claim import claimed
from txlbench.records.schema import RunState
from txlbench.tracking.backlog import backlog, nothing_to_deliver
from txlbench.tracking.deliver import deliver

pytestmark = [pytest.mark.full, pytest.mark.alone]
SECONDS = 120


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def mlflow_server(folder: Path, port: int) -> Iterator[None]:
    """`mlflow server` on its own sqlite file; it and its workers are gone afterwards."""
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--workers", "1"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--backend-store-uri", f"sqlite:///{folder}/server.db"),
        *("--artifacts-destination", str(folder / "artifacts")),
    ]
    quiet = {key: value for key, value in os.environ.items() if not key.startswith("MLFLOW_")}
    with (folder / "server.log").open("a") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=quiet, start_new_session=True, cwd=folder
        )
    try:
        until(lambda: answers(port), "the server answers")
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def answers(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


def until(is_so, what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Where the server is, by the environment."""
    port = free_port()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_RUN_ID", "0123456789abcdef0123456789abcdef")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "elsewhere")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "777")
    return port


def delivered(name: str) -> dict[str, list[int]]:
    """Steps of the training loss at the server, by run."""
    client = MlflowClient()
    experiment = client.get_experiment_by_name(name)
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    return {
        run.info.run_name: [
            point.step for point in client.get_metric_history(run.info.run_id, "train_bpc")
        ]
        for run in runs
        if "mlflow.parentRunId" in run.data.tags
    }


def test_a_server_that_stops_and_comes_back_gets_everything(port: int, tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path / "results")
    directory = laboratory.experiment(seeds=[1], rows=[{"label": "xl"}])
    ((line, config, run),) = laboratory.runs(directory)
    run.path.mkdir(parents=True)
    module, pipe = "txlbench.tracking.deliver", subprocess.PIPE
    mirror = subprocess.Popen(
        [sys.executable, "-m", module, str(directory.path), "--follow"],
        stdin=pipe, stdout=pipe, stderr=pipe, text=True,
    )  # fmt: skip
    with claimed(run.path):
        laboratory.start(run, config, line)
        laboratory.train(run, config, 40)
        with mlflow_server(tmp_path, port):
            until(lambda: backlog(directory.path) == (0, 0), "the first half is delivered")
        laboratory.train(run, config, 70, first=41)
        time.sleep(6)  # the mirror meets the dead server
        assert mirror.poll() is None
        assert backlog(directory.path)[0] == 1
        laboratory.train(run, config, 100, first=71)
        with mlflow_server(tmp_path, port):
            laboratory.finish(run, config, line)  # writes its lines once more, as after a resume
            said, errors = mirror.communicate(timeout=SECONDS)
            assert (said, mirror.returncode) == ("", 0), errors
            (steps,) = delivered("small").values()
    assert set(steps) == set(range(2, 101, 2))


def test_without_a_server_the_run_finishes_and_sync_delivers_later(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    write_text(tmp_path / "mine.txt")
    write_spec()
    status, output, _ = call("ablate", "spec.yaml", "--device", "cpu", env=environment())
    (run,) = plan_of()
    assert status == 0
    assert run.directory.state is RunState.FINISHED
    lines = run.directory.metrics_file.read_text().count("\n")
    assert f"MLflow lacks {lines} lines of 1 run (" in output
    assert "`txlbench sync results/trial`" in output
    with mlflow_server(tmp_path, port):
        status, _, errors = call("sync", env=environment())
        assert status == 0, errors
        assert {name: set(steps) for name, steps in delivered("trial").items()} == {
            "trial": {3, 6, 9, 12}
        }
        client = MlflowClient()
        (experiment,) = [each for each in client.search_experiments() if each.name == "trial"]
        assert client.search_runs(["0"]) == []
        assert len(client.search_runs([experiment.experiment_id])) == 2
    assert nothing_to_deliver(Path("results/trial"))


def test_a_server_that_never_answers_changes_nothing(
    port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    write_text(tmp_path / "mine.txt")
    write_spec()
    with socket.create_server(("127.0.0.1", port)):
        begun = time.monotonic()
        status, output, _ = call(
            "ablate", "spec.yaml", "--device", "cpu", env=environment(), timeout=240
        )
        assert time.monotonic() - begun < 200
    (run,) = plan_of()
    assert (status, run.directory.state) == (0, RunState.FINISHED)
    assert "MLflow lacks " in output


def test_a_late_delivery_changes_what_the_server_says_of_a_dead_run(
    port: int, tmp_path: Path
) -> None:
    laboratory = Laboratory(tmp_path / "results")
    directory = laboratory.experiment(seeds=[1], rows=[{"label": "xl"}])
    ((line, config, run),) = laboratory.runs(directory)
    run.path.mkdir(parents=True)
    with mlflow_server(tmp_path, port):
        with claimed(run.path):
            laboratory.start(run, config, line)
            assert deliver(directory.path) is None
        assert deliver(directory.path) is None
        client = MlflowClient()
        experiment = client.get_experiment_by_name("small")
        assert experiment is not None
        runs = client.search_runs([experiment.experiment_id])
        assert {each.info.status for each in runs} == {"KILLED"}
