"""`txlbench sync`, as a user types it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.reporting.laboratory import Laboratory
from tests.reporting.recl_records import write_record
from txlbench.cli.main import cli
from txlbench.errors import UserError


@pytest.fixture
def laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return Laboratory(Path("results"))


def sync(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(cli, ["sync", *arguments], standalone_mode=False)
    if found.exception is not None:
        raise found.exception
    return found.return_value, found.stdout, found.stderr


def test_delivered_once_and_rebuilt_when_asked(laboratory: Laboratory) -> None:
    laboratory.finished(seeds=[1], rows=[{"label": "xl"}])
    status, printed, _ = sync()
    assert status == 0
    assert printed.startswith("results/small: delivered; ")
    address = "http://127.0.0.1:5000/#/experiments/1?workflowType=machine_learning"
    command = "mlflow ui --backend-store-uri sqlite:///results/mlflow.db"
    assert printed.endswith(f"{command}  # {address}\n")
    assert sync("results/small")[1].startswith("results/small: nothing new")
    assert sync("--rebuild")[1].startswith("results/small: delivered")


def test_a_dead_server_is_one_line_and_status_1(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    laboratory.finished(seeds=[1], rows=[{"label": "xl"}])
    status, _, complaint = sync()
    assert status == 1
    assert complaint.startswith("results/small: MLflow lacks 60 lines of 1 run ")
    assert complaint.count("\n") == 1


def test_results_of_recl_too(laboratory: Laboratory) -> None:
    write_record(Path("results/recl-1"))
    status, printed, _ = sync()
    assert status == 0
    assert printed.startswith("results/recl-1/recl.json: delivered; ")
    assert sync("results/recl-1")[1].startswith("results/recl-1/recl.json: nothing new; ")
    assert sync("--rebuild")[1].startswith("results/recl-1/recl.json: delivered; ")


def test_a_finding_that_stays_behind_is_named(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    laboratory.experiment(name="a")
    write_record(Path("results/recl-1"))
    status, _, complaint = sync()
    assert status == 1
    assert "results/recl-1/recl.json: MLflow lacks it (" in complaint
    assert "deliver it with `txlbench sync results/recl-1`" in complaint


def test_nothing_found(laboratory: Laboratory) -> None:
    with pytest.raises(UserError, match="no result found"):
        sync()
