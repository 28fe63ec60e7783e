"""Finds an experiment's MLflow store, and the command that shows it."""

import os
import re
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from txlbench.errors import UserError
from txlbench.records.claim import claimed

SQLITE = "sqlite:///"
PATIENCE_SECONDS = 300.0
"""For other deliveries, of which each brings all that its experiment has."""


@dataclass(frozen=True)
class Store:
    """An MLflow tracking store.

    Attributes:
        uri: as MLflow takes it.
        artifacts: folder for files; None where a server decides.
        is_own: the sqlite store beside the experiments, not one named by MLFLOW_TRACKING_URI.
        claims: the directory that is claimed by whoever delivers to it.
    """

    uri: str
    artifacts: Path | None
    is_own: bool
    claims: Path

    @property
    def database(self) -> Path | None:
        """The sqlite file; None for a server or another kind of store."""
        if not self.uri.startswith(SQLITE):
            return None
        return Path(unquote(self.uri.removeprefix(SQLITE)))

    def lacks(self, run_ids: Collection[str]) -> bool:
        """Whether some run is missing, as far as that can be told without MLflow or a server.

        The notes beside the files say what was delivered. The query only finds a database that is
        gone, or was emptied, and runs that somebody deleted. Where a later MLflow has other tables,
        the notes are believed.
        """
        if self.database is None:
            return False
        address = f"{self.database.absolute().as_uri()}?mode=ro"
        try:
            with closing(sqlite3.connect(address, uri=True)) as connection:
                if not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                    return True
                try:
                    query = "SELECT run_uuid FROM runs WHERE lifecycle_stage='active'"
                    return not set(run_ids) <= {row[0] for row in connection.execute(query)}
                except sqlite3.OperationalError:
                    return False
        except sqlite3.Error:  # no such file, or not a database
            return True

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lets one process at a time deliver, on all machines that share the disk.

        A fresh sqlite file that several migrate at once loses all their runs; two that deliver one
        experiment to a server make two runs of each.

        Raises:
            UserError: if another one has not ended in `PATIENCE_SECONDS`.
        """
        self.claims.mkdir(parents=True, exist_ok=True)
        with claimed(self.claims, PATIENCE_SECONDS) as claim:
            if claim is None:
                raise UserError(f"{self.uri}: another process delivers to it", "sync it later")
            with claim.kept():
                yield


def _sqlite_uri(database: Path) -> str:
    """Returns the URI of a database, with the characters encoded that would end its path."""
    return SQLITE + re.sub("[%?#]", lambda found: quote(found[0]), str(database))


def store_of(experiment: Path) -> Store:
    """Returns the store of the experiment in directory `experiment`."""
    parent = experiment.resolve().parent
    artifacts = parent / "mlartifacts"
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not uri:
        database = parent / "mlflow.db"
        return Store(_sqlite_uri(database), artifacts, True, parent / ".mlflow.claims")
    if uri.startswith(SQLITE):
        database = Path(unquote(uri.removeprefix(SQLITE))).absolute()
        return Store(_sqlite_uri(database), artifacts, False, _claims_beside(database))
    if (folder := _folder(uri)) is not None:
        return Store(folder.as_uri(), None, False, _claims_beside(folder))
    return Store(uri, None, False, experiment / ".mlflow.claims")


def _folder(uri: str) -> Path | None:
    """Returns the folder that `uri` names as a path or as file:, absolute; None if none."""
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        return None
    return Path(unquote(parts.path) if parts.scheme else uri).absolute()


def _claims_beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.claims")


def ui_command(store: Store) -> str:
    """Returns the command that shows a store that is no server."""
    uri, setting = store.uri, ""
    if _folder(uri) is not None:
        setting = "MLFLOW_ALLOW_FILE_STORE=true "  # else MLflow 3 refuses folders
    elif store.is_own and store.database is not None:
        uri = _sqlite_uri(_shortest(store.database))
    return f"{setting}{_mlflow_executable()} ui --backend-store-uri {shlex.quote(uri)}"


def _mlflow_executable() -> str:
    """Returns `mlflow` if that is found, else the one beside this Python."""
    if shutil.which("mlflow"):
        return "mlflow"
    return shlex.quote(str(_shortest(Path(sys.executable).with_name("mlflow"))))


def _shortest(path: Path) -> Path:
    """Returns `path` relative to the working directory if it is below it."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path
