"""Where an experiment's MLflow store is, and how to look at it."""

import os
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

SQLITE = "sqlite:///"


@dataclass(frozen=True)
class Store:
    """An MLflow tracking store.

    Attributes:
        uri: as MLflow takes it.
        artifacts: folder for files; None where a server decides.
        is_own: the sqlite store beside the experiments, not one named by MLFLOW_TRACKING_URI.
        lock: a file locked by whoever delivers to it.
    """

    uri: str
    artifacts: Path | None
    is_own: bool
    lock: Path

    @property
    def database(self) -> Path | None:
        """The sqlite file; None for a server or another kind of store."""
        return Path(self.uri.removeprefix(SQLITE)) if self.uri.startswith(SQLITE) else None

    def lacks(self, run_ids: Collection[str]) -> bool:
        """Whether some run is missing, as far as that can be told without MLflow or a server."""
        if self.database is None:
            return False
        address = f"{self.database.absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(address, uri=True)) as connection:
                rows = connection.execute(
                    "SELECT run_uuid FROM runs WHERE lifecycle_stage='active'"
                )
                return not set(run_ids) <= {row[0] for row in rows}
        except sqlite3.Error:  # no such file, not a database, or another schema: MLflow decides
            return True

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process at a time delivers: a fresh sqlite file that several migrate at once
        loses all their runs."""
        import fcntl

        self.lock.parent.mkdir(parents=True, exist_ok=True)
        with self.lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def store_of(experiment: Path) -> Store:
    """The store of the experiment in directory `experiment`."""
    parent = experiment.resolve().parent
    artifacts = parent / "mlartifacts"
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not uri:
        database = parent / "mlflow.db"
        return Store(f"{SQLITE}{database}", artifacts, True, parent / ".mlflow.lock")
    if uri.startswith(SQLITE):
        database = Path(uri.removeprefix(SQLITE)).absolute()
        return Store(f"{SQLITE}{database}", artifacts, False, _lock_beside(database))
    if (folder := _folder(uri)) is not None:
        return Store(folder.as_uri(), None, False, _lock_beside(folder))
    return Store(uri, None, False, experiment / ".mlflow.lock")


def _folder(uri: str) -> Path | None:
    """The folder that `uri` names as a path or as file:, absolute; None if it names none."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path) if parts.scheme else uri).absolute()


def _lock_beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


def ui_command(experiment: Path) -> str:
    """The line to type to look at the experiment's runs, or the server's address."""
    store = store_of(experiment)
    if urlsplit(store.uri).scheme in ("http", "https"):
        return store.uri
    uri, setting = store.uri, ""
    if _folder(uri) is not None:
        setting = "MLFLOW_ALLOW_FILE_STORE=true "  # else MLflow 3 refuses folders
    elif store.is_own and store.database is not None:
        uri = f"{SQLITE}{_shortest(store.database)}"
    return f"{setting}{_mlflow_executable()} ui --backend-store-uri {shlex.quote(uri)}"


def _mlflow_executable() -> str:
    """`mlflow` if that is found, else the one beside this Python."""
    if shutil.which("mlflow"):
        return "mlflow"
    return shlex.quote(str(_shortest(Path(sys.executable).with_name("mlflow"))))


def _shortest(path: Path) -> Path:
    """`path` relative to the working directory if it is below it."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
