"""The client of a tracking store: the one file that imports MLflow."""

# ruff: noqa: E402
import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
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

from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from txlbench.errors import UserError
from txlbench.tracking.store import Store

METRICS_A_BATCH = 1000
ENTITIES_A_BATCH = 100
LONGEST_REASON = 400
KIND = {"mlflow.experimentKind": "custom_model_development"}
"""Makes MLflow show runs and charts of training, not the traces and judges of "GenAI"."""
DELIVERY = "txlbench.delivery"
"""The tag by which a run is found whose creation was not acknowledged."""

NOTE = "mlflow.note.content"
"""The tag that MLflow shows as a description, in Markdown."""

T = TypeVar("T")


class Point(NamedTuple):
    """One value of a metric; `stamp` in milliseconds since the epoch."""

    name: str
    value: float
    stamp: int
    step: int


class MlflowStore:
    """A tracking store, read and written run by run; raises whatever MLflow raises.

    Attributes:
        moves: what happened to experiments whose folder was moved or copied, a line each.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = MlflowClient(tracking_uri=store.uri)
        self._remove_stray_folder()
        self._seen: set[str] = set()
        self.moves: list[str] = []

    def _remove_stray_folder(self) -> None:
        """MLflow makes the folder of the database a second time, by its name as encoded."""
        folder = Path(self._store.uri.removeprefix("sqlite:///")).parent
        if self._store.database is not None and folder != self._store.database.parent:
            with contextlib.suppress(OSError):
                folder.rmdir()

    def experiment_id(self, name: str) -> str:
        """Returns the MLflow experiment called `name`, which is made or restored if need be."""
        found = self._client.get_experiment_by_name(name)
        folder = self._store.artifacts
        location = None if folder is None else (folder / name).as_uri()
        if found and self._store.is_own and found.artifact_location != location:
            self._retire(name, found.experiment_id, found.artifact_location)
            found = None
        if found is None:
            try:
                return str(self._client.create_experiment(name, location, tags=KIND))
            except MlflowException:  # another process was faster, or there is no store
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        for tag, value in KIND.items():
            if tag not in found.tags:
                self._client.set_experiment_tag(found.experiment_id, tag, value)
        return str(found.experiment_id)

    def _retire(self, name: str, experiment: str, location: str) -> None:
        """Deletes an experiment whose folder was moved or copied; MLflow can restore it.

        New files would go to the old place, and MLflow lets nobody change where they are.
        """
        old = f"{name} until {time.time():.0f}"
        self._client.rename_experiment(experiment, old)
        self._client.delete_experiment(experiment)
        self.moves.append(
            f"MLflow: the results were moved or copied here from {location}; '{name}' is delivered "
            f"anew, and what the store had is kept as '{old}' among its deleted experiments"
        )

    def describe_experiment(self, experiment: str, note: str) -> None:
        """Sets the text that MLflow shows above the runs."""
        self._client.set_experiment_tag(experiment, NOTE, note)

    def exists(self, run: str) -> bool:
        """Whether the store has the run, not deleted; asked once a process."""
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
        """Finds the run of experiment `home` that was created with this token."""
        found = self._client.search_runs([home], f"tags.`{DELIVERY}` = '{token}'", max_results=1)
        return str(found[0].info.run_id) if found else None

    def create(
        self, home: str, name: str, token: str, tags: Mapping[str, str], started: float
    ) -> str:
        """Creates a run of experiment `home`, started at `started` (seconds; 0 for now)."""
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
        """Logs all points but infinite ones, for which MLflow stores the largest number."""
        metrics = [Metric(p.name, p.value, p.stamp, p.step) for p in points if isfinite(p.value)]
        for batch in _batches(metrics, METRICS_A_BATCH):
            self._client.log_batch(run, metrics=batch)

    def log_parameters(self, run: str, parameters: Mapping[str, str]) -> None:
        """Logs parameters that the run lacks: MLflow lets nobody change one."""
        known = self._client.get_run(run).data.params
        new = [Param(name, value) for name, value in parameters.items() if name not in known]
        for batch in _batches(new, ENTITIES_A_BATCH):
            self._client.log_batch(run, params=batch)

    def log_dataset(self, run: str, name: str, digest: str, profile: str) -> None:
        """Logs the corpus of a run as its input; once however often it is delivered."""
        dataset = Dataset(name, digest[:12], "code", "txlbench", profile=profile)
        tags = [InputTag("mlflow.data.context", "training")]
        self._client.log_inputs(run, [DatasetInput(dataset, tags)])

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
    """Turns down the logs of MLflow and its migrations, which tell at length what is in order."""
    for name in ("mlflow", "alembic", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)


def reason_of(error: Exception) -> str:
    """Says why a delivery failed, in one line."""
    kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
    return kind + " ".join(str(error).split())[:LONGEST_REASON]


def milliseconds(seconds: float) -> int:
    return int(1000 * seconds)


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
