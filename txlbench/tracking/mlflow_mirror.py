"""The MLflow mirror: delivers what run directories hold and MLflow lacks, in one process.

`python -m txlbench.tracking.mlflow_mirror EXPERIMENT_DIR [--follow]`. Training never imports
MLflow; the files are the backlog, so a server that stops costs nothing but a later delivery.
"""

# ruff: noqa: E402
import argparse
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # a dead server is noticed in seconds
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
for variable, setting in SETTINGS.items():  # before the import that reads them
    os.environ.setdefault(variable, setting)

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from txlbench.config.expansion import Experiment
from txlbench.errors import ExitStatus, UserError
from txlbench.files import read_json_lines
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.run_directory import RunDirectory
from txlbench.tracking.backlog import (
    EXPERIMENT_FILES,
    RUN_FILES,
    Delivered,
    backlog,
    mlflow_status,
    name_and_config,
    next_offset,
    overall_status,
    started_runs,
)
from txlbench.tracking.following import follow
from txlbench.tracking.numbers import Clock, line_values, summary_values
from txlbench.tracking.parameters import parameters_of, settings_of
from txlbench.tracking.store import store_of

METRICS_A_BATCH = 1000
ENTITIES_A_BATCH = 100

T = TypeVar("T")


class Mirror:
    """One experiment's side of MLflow: an experiment, a parent run, and a child for each run."""

    def __init__(self, directory: Path) -> None:
        self.directory = ExperimentDirectory(directory)
        self.store = store_of(directory)
        self._client = MlflowClient(tracking_uri=self.store.uri)
        self._seen: set[str] = set()

    def deliver(self) -> None:
        """Delivers what is new.

        Raises:
            UserError: for a run whose files are broken, after all others are delivered.
            Exception: whatever MLflow raises where the store cannot be reached; what was
                delivered until then is noted and not delivered again.
        """
        experiment = self.directory.read_spec()
        home = self._experiment_id(experiment.name)
        runs = started_runs(self.directory)
        status = overall_status(runs)
        folder = self.directory.path
        tags = {"txlbench.experiment_dir": str(folder.resolve())}
        parent = self._ensure_run(folder, home, experiment.name, tags)
        broken: UserError | None = None
        for run in runs:
            try:
                self._deliver_run(run, experiment, home, parent)
            except UserError as error:  # its files are not what they should be; others' are
                broken = error
        self._deliver_files(folder, parent, EXPERIMENT_FILES)
        self._set_status(folder, parent, status, ended=time.time())
        if broken is not None:
            raise broken

    def forget(self) -> None:
        """Deletes this experiment's runs from the store, so that all is delivered anew."""
        folders = [run.path for run in self.directory.runs()]
        for folder in [*folders, self.directory.path]:
            notes = Delivered.read(folder, self.store)
            if notes.run_id is not None and self._exists(notes.run_id):
                self._client.delete_run(notes.run_id)
            Delivered(self.store.uri).write(folder)

    def _experiment_id(self, name: str) -> str:
        """The MLflow experiment called `name`, made or restored if need be."""
        found = self._client.get_experiment_by_name(name)
        folder = self.store.artifacts
        location = None if folder is None else (folder / name).as_uri()
        if found and self.store.is_own and found.artifact_location != location:
            # The folder was moved: files delivered from now on would go to the old place.
            self._client.rename_experiment(found.experiment_id, f"{name} until {time.time():.0f}")
            found = None
        if found is None:
            return str(self._client.create_experiment(name, artifact_location=location))
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)

    def _ensure_run(
        self, folder: Path, home: str, name: str, tags: Mapping[str, str], started: float = 0.0
    ) -> Delivered:
        """The notes of `folder`, whose MLflow run exists from now on."""
        notes = Delivered.read(folder, self.store)
        if notes.run_id is not None and not self._exists(notes.run_id):
            notes = Delivered(self.store.uri)
        if notes.run_id is None:
            notes.write(folder)
            notes.run_id = self._find(home, notes.token) or self._create(
                home, name, {**tags, "txlbench.delivery": notes.token}, started
            )
            notes.write(folder)
        return notes

    def _exists(self, run_id: str) -> bool:
        """Whether the store has the run and nobody deleted it; asked once a process."""
        if run_id not in self._seen:
            try:
                stage = self._client.get_run(run_id).info.lifecycle_stage
            except MlflowException as error:
                if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                    raise
                return False
            if stage != "active":
                return False
            self._seen.add(run_id)
        return True

    def _find(self, home: str, token: str) -> str | None:
        query = f"tags.`txlbench.delivery` = '{token}'"
        found = self._client.search_runs([home], query, max_results=1)
        return str(found[0].info.run_id) if found else None

    def _create(self, home: str, name: str, tags: dict[str, str], started: float) -> str:
        when = int(1000 * (started or time.time()))
        run = self._client.create_run(home, start_time=when, tags=tags, run_name=name)
        self._seen.add(run.info.run_id)
        return str(run.info.run_id)

    def _deliver_run(
        self, run: RunDirectory, experiment: Experiment, home: str, parent: Delivered
    ) -> None:
        status = mlflow_status(run)  # before its files are read: they are complete if it is
        name, config = name_and_config(run, experiment)
        when = run.read_status().get("started", 0.0)
        tags = {
            "mlflow.parentRunId": parent.run,
            "txlbench.run_id": run.id,
            "txlbench.run_dir": str(run.path.resolve()),
        }
        notes = self._ensure_run(run.path, home, name, tags, when)
        if not notes.files:
            self._log(notes, params=parameters_of(config), tags=settings_of(config))
        self._deliver_metrics(run, notes)
        if "summary.json" in {path.name for path, _ in notes.changed(run.path, RUN_FILES)}:
            self._log(notes, tags=settings_of(config))
            values = summary_values(run.read_summary(), config)
            stamp = _milliseconds(run.read_status().get("updated", when))
            self._log_metrics(notes, [Metric(k, v, stamp, step) for k, v, step in values])
        self._deliver_files(run.path, notes, RUN_FILES)
        self._set_status(run.path, notes, status, run.read_status().get("updated", when))

    def _deliver_metrics(self, run: RunDirectory, notes: Delivered) -> None:
        """Sends the lines after the last delivered one, and notes the place after each batch."""
        start = next_offset(run, notes)
        if start is None:
            return
        clock = Clock(run)
        waiting: list[Metric] = []
        for line, offset in read_json_lines(run.metrics_file, start):
            step = int(line["step"])
            stamp = clock.milliseconds(step)
            new = [Metric(name, value, stamp, step) for name, value in line_values(line)]
            if len(waiting) + len(new) > METRICS_A_BATCH:
                self._log_metrics(notes, waiting)
                notes.write(run.path)
                waiting = []
            waiting += new
            notes.offset = offset
        self._log_metrics(notes, waiting)
        notes.write(run.path)

    def _log_metrics(self, notes: Delivered, metrics: Sequence[Metric]) -> None:
        for batch in _batches(metrics, METRICS_A_BATCH):
            self._client.log_batch(notes.run, metrics=batch)

    def _log(
        self,
        notes: Delivered,
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        entries = [Param(*item) for item in (params or {}).items()]
        labels = [RunTag(*item) for item in (tags or {}).items()]
        for some in _batches(entries, ENTITIES_A_BATCH):
            self._client.log_batch(notes.run, params=some)
        for few in _batches(labels, ENTITIES_A_BATCH):
            self._client.log_batch(notes.run, tags=few)

    def _deliver_files(self, folder: Path, notes: Delivered, patterns: tuple[str, ...]) -> None:
        for path, digest in notes.changed(folder, patterns):
            below = path.relative_to(folder)
            inside = str(below.parent) if below.parent != Path() else None
            self._client.log_artifact(notes.run, str(path), inside)
            notes.files[str(below)] = digest
            notes.write(folder)

    def _set_status(self, folder: Path, notes: Delivered, status: str, ended: float) -> None:
        if notes.status == status:
            return
        if status == "RUNNING":
            self._client.update_run(notes.run, status=status)
        else:
            self._client.set_terminated(notes.run, status, _milliseconds(ended))
        notes.status = status
        notes.write(folder)


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _milliseconds(seconds: float) -> int:
    return int(1000 * seconds)


def deliver(directory: Path, rebuild: bool = False) -> str | None:
    """Delivers what is new of the experiment in `directory`; why not, in one line, if it failed.

    Args:
        rebuild: delete its runs from the store first and deliver everything anew.
    """
    _silence()
    try:
        with store_of(directory).locked():
            mirror = Mirror(directory)
            if rebuild:
                mirror.forget()
            mirror.deliver()
    except Exception as error:  # whatever a store does must not stop whoever runs beside us
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None


def what_is_left(directory: Path, reason: str) -> str:
    """One line: what MLflow lacks, why, and how to deliver it."""
    runs, lines = backlog(directory)
    return (
        f"{directory}: MLflow lacks {lines} lines of {runs} run{'s' * (runs != 1)} ({reason}); "
        f"deliver them with `txlbench sync {directory}`"
    )


def _silence() -> None:
    """MLflow and its migrations talk at length about what is in order."""
    for name in ("mlflow", "alembic", "urllib3"):
        logging.getLogger(name).setLevel(logging.ERROR)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the process beside `ablate`."""
    parser = argparse.ArgumentParser(prog="txlbench.tracking.mlflow_mirror", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--follow", action="store_true", help="until standard input is closed")
    given = parser.parse_args(arguments)
    reason: str | None = None

    def attempt() -> bool:
        nonlocal reason
        reason = deliver(given.directory)
        return reason is None

    if not (follow(attempt) if given.follow else attempt()):
        print(what_is_left(given.directory, reason or "unknown"))
        return ExitStatus.RUN_FAILED
    return ExitStatus.DONE


if __name__ == "__main__":
    sys.exit(main())
