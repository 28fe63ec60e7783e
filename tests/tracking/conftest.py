"""A laboratory beside a store that is migrated already, as a fresh one takes seconds."""

import shutil
from pathlib import Path

import pytest

from tests.reporting.laboratory import Laboratory


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty MLflow database."""
    from txlbench.tracking.deliver import deliver

    laboratory = Laboratory(tmp_path_factory.mktemp("migrated"))
    assert deliver(laboratory.experiment(name="empty").path) is None
    return laboratory.folder / "mlflow.db"


@pytest.fixture
def laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    """Without a database; the environment tries to mislead whoever asks it."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_RUN_ID", "0123456789abcdef0123456789abcdef")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "elsewhere")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "777")
    return Laboratory(tmp_path / "results")


@pytest.fixture
def stocked(laboratory: Laboratory, migrated: Path) -> Laboratory:
    """With a database that holds nothing of the experiment."""
    laboratory.folder.mkdir()
    shutil.copy(migrated, laboratory.folder / "mlflow.db")
    return laboratory
