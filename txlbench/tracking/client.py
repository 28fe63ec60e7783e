"""What is asked of MLflow, and nothing else of it: the one file that imports the library."""

# ruff: noqa: E402
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # a dead server is noticed in seconds
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_ALLOW_FILE_STORE": "true",  # MLflow 3 refuses folders that a user names, else
}
for variable, setting in SETTINGS.items():  # before the import that reads them
    os.environ.setdefault(variable, setting)

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from txlbench.errors import UserError
from txlbench.tracking.store import Store

METRICS_A_BATCH = 1000
ENTITIES_A_BATCH = 100
LONGEST_REASON = 400
DELIVERY = "txlbench.delivery"
"""The tag by which a run is found whose creation was not acknowledged."""

T = TypeVar("T")


class Point(NamedTuple):
    """One value of a metric; `stamp` in milliseconds since the epoch."""

    name: str
    value: float
    stamp: int
    step: int


class MlflowStore:
    """A tracking store, asked and written to run by run; raises whatever MLflow raises."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = MlflowClient(tracking_uri=store.uri)
        self._seen: set[str] = set()

    def experiment_id(self, name: str) -> str:
        """The MLflow experiment called `name`, made or restored if need be."""
        found = self._client.get_experiment_by_name(name)
        folder = self._store.artifacts
        location = None if folder is None else (folder / name).as_uri()
        if found and self._store.is_own and found.artifact_location != location:
            # The folder was moved: files delivered from now on would go to the old place.
            self._client.rename_experiment(found.experiment_id, f"{name} until {time.time():.0f}")
            found = None
        if found is None:
            return str(self._client.create_experiment(name, artifact_location=location))
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def exists(self, run: str) -> bool:
        """Whether the store has the run and nobody deleted it; asked once a process."""
        if run not in self._seen:
            try:
                stage = self._client.get_run(run).info.lifecycle_stage
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                return False
            if stage != "active":
                return False
            self._seen.add(run)
        return True

    def find(self, home: str, token: str) -> str | None:
        """The run of experiment `home` that was created with this token."""
        found = self._client.search_runs([home], f"tags.`{DELIVERY}` = '{token}'", max_results=1)
        return str(found[0].info.run_id) if found else None

    def create(
        self, home: str, name: str, token: str, tags: Mapping[str, str], started: float
    ) -> str:
        """A new run of experiment `home`, started at `started` (seconds; 0 for now)."""
        when = milliseconds(started or time.time())
        labels = {**tags, DELIVERY: token}
        run = self._client.create_run(home, start_time=when, tags=labels, run_name=name)
        self._seen.add(run.info.run_id)
        return str(run.info.run_id)

    def delete(self, run: str) -> None:
        if self.exists(run):
            self._client.delete_run(run)
            self._seen.discard(run)

    def log_points(self, run: str, points: Sequence[Point]) -> None:
        metrics = [Metric(each.name, each.value, each.stamp, each.step) for each in points]
        for batch in _batches(metrics, METRICS_A_BATCH):
            self._client.log_batch(run, metrics=batch)

    def log_parameters(self, run: str, parameters: Mapping[str, str]) -> None:
        for batch in _batches([Param(*item) for item in parameters.items()], ENTITIES_A_BATCH):
            self._client.log_batch(run, params=batch)

    def set_tags(self, run: str, tags: Mapping[str, str]) -> None:
        for batch in _batches([RunTag(*item) for item in tags.items()], ENTITIES_A_BATCH):
            self._client.log_batch(run, tags=batch)

    def log_file(self, run: str, path: Path, folder: str | None) -> None:
        """Uploads the file at `path` into `folder` of the run's artifacts."""
        self._client.log_artifact(run, str(path), folder)

    def set_status(self, run: str, status: str, ended: float) -> None:
        """Sets MLflow's word for the state; one that is not open ended at `ended`."""
        if status == "RUNNING":
            self._client.update_run(run, status=status)
        else:
            self._client.set_terminated(run, status, milliseconds(ended))


def silence() -> None:
    """MLflow and its migrations talk at length about what is in order."""
    for name in ("mlflow", "alembic", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)


def reason_of(error: Exception) -> str:
    """Why a delivery failed, in one line."""
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return kind + " ".join(str(error).split())[:LONGEST_REASON]


def milliseconds(seconds: float) -> int:
    return int(1000 * seconds)


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
