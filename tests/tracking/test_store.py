"""Where the store is, and the command that shows it."""

import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import pytest
from sqlalchemy.engine import make_url

from txlbench.files import write_json
from txlbench.tracking.backlog import where_to_look
from txlbench.tracking.store import store_of


@pytest.fixture(autouse=True)
def _workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def test_beside_the_experiments() -> None:
    store = store_of(Path("results/small"))
    assert store.uri == f"sqlite:///{Path.cwd()}/results/mlflow.db"
    assert store.artifacts == Path.cwd() / "results/mlartifacts"


def test_the_line_is_relative_below_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    (Path("bin")).mkdir()
    executable = Path("bin/mlflow").absolute()
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o755)
    monkeypatch.setenv("PATH", str(executable.parent))
    line = where_to_look(Path("results/small"))
    assert line == "mlflow ui --backend-store-uri sqlite:///results/mlflow.db"
    elsewhere = where_to_look(Path("/somewhere else/small"))
    assert elsewhere == "mlflow ui --backend-store-uri 'sqlite:////somewhere else/mlflow.db'"


def test_an_mlflow_that_is_not_on_the_path_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(sys, "executable", str(Path.cwd() / ".venv/bin/python"))
    assert where_to_look(Path("results/small")).startswith(".venv/bin/mlflow ui ")


def test_a_server_is_shown_by_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server:5000")
    assert where_to_look(Path("results/small")) == "http://server:5000/"
    assert store_of(Path("results/small")).artifacts is None


def test_a_delivered_experiment_has_the_address_of_its_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """MLflow shows its "GenAI" pages unless the address asks for those of training."""
    page = "/#/experiments/7?workflowType=machine_learning"
    for uri, start in (
        ("", "mlflow ui --backend-store-uri sqlite:///results/mlflow.db  # "),
        ("http://server:5000", ""),
    ):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        monkeypatch.setattr("shutil.which", lambda name: name)
        store = store_of(Path("results/small")).uri
        write_json(Path("results/small/mlflow.json"), {"store": store, "experiment_id": "7"})
        server = uri or "http://127.0.0.1:5000"
        assert where_to_look(Path("results/small")) == f"{start}{server}{page}"


@pytest.mark.parametrize("name", ["a?b=c", "50%25", "x#y", "my results"])
def test_a_folder_of_any_name_holds_its_own_database(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of(Path(name, "small"))
    assert store.database == Path.cwd() / name / "mlflow.db"
    assert make_url(store.uri).database == str(store.database)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri)
    assert store_of(Path("elsewhere")).database == store.database


def test_another_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////data/all.db")
    assert where_to_look(Path("results/small")).endswith(" sqlite:////data/all.db")


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        ("runs", "file://{here}/runs"),
        ("file:runs", "file://{here}/runs"),
        ("file:///my%20runs", "file:///my%20runs"),
        ("/my runs", "file:///my%20runs"),
        ("sqlite:///data/all.db", "sqlite:///{here}/data/all.db"),
        ("sqlite:////all.db", "sqlite:////all.db"),
    ],
)
def test_a_store_is_the_same_wherever_it_is_named_from(
    monkeypatch: pytest.MonkeyPatch, given: str, uri: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", given)
    assert store_of(Path("results/small")).uri == uri.format(here=Path.cwd())


def test_folders_are_shown_with_what_mlflow_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "/runs")
    line = where_to_look(Path("results/small"))
    assert line.startswith("MLFLOW_ALLOW_FILE_STORE=true ")
    assert line.endswith("mlflow ui --backend-store-uri file:///runs")


def test_only_one_delivers_at_a_time() -> None:
    first, second = store_of(Path("results/a")), store_of(Path("results/b"))
    entered = Event()

    def deliver() -> None:
        with second.locked():
            entered.set()

    with first.locked():
        other = Thread(target=deliver)
        other.start()
        assert not entered.wait(0.2)
    other.join()
    assert entered.is_set()


def test_a_database_without_the_run_lacks_it(tmp_path: Path) -> None:
    store = store_of(Path("results/small"))
    assert store.lacks(["x"])
    Path("results").mkdir()
    Path("results/mlflow.db").write_text("not a database")
    assert store.lacks(["x"])


def test_notes_are_believed_where_a_later_mlflow_has_other_tables() -> None:
    """Else every call would begin a delivery."""
    store = store_of(Path("results/small"))
    Path("results").mkdir()
    with closing(sqlite3.connect(Path("results/mlflow.db"))) as database:
        assert store.lacks(["x"])  # an empty one
        database.execute("CREATE TABLE attempts (uuid TEXT)")
        database.commit()
        assert not store.lacks(["x"])
        database.execute("CREATE TABLE runs (run_uuid TEXT, lifecycle_stage TEXT)")
        database.execute("INSERT INTO runs VALUES ('x', 'active'), ('y', 'deleted')")
        database.commit()
        assert not store.lacks(["x"])
        assert store.lacks(["x", "y"])
