"""Mirrors of experiments and findings in MLflow: what their files hold and a store lacks.

Training never imports MLflow; the files are the backlog, so a server that stops costs nothing but a
later delivery.
"""

import contextlib
import getpass
import json
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path

from txlbench.config.grid import Experiment
from txlbench.errors import UserError
from txlbench.files import read_json_lines
from txlbench.records.experiment_directory import FINDINGS, ExperimentDirectory
from txlbench.records.finding_schema import read_finding
from txlbench.records.run_directory import RunDirectory, parse_line
from txlbench.tracking.backlog import (
    EXPERIMENT_FILES,
    RUN_FILES,
    Delivered,
    damaged_runs,
    files_of_finding,
    mlflow_status,
    name_and_config,
    next_offset,
    overall_status,
    started_runs,
)
from txlbench.tracking.client import (
    METRICS_A_BATCH,
    NOTE,
    MlflowStore,
    Point,
    milliseconds,
)
from txlbench.tracking.store import store_of
from txlbench.tracking.values import (
    Clock,
    Value,
    comparison_values,
    description,
    facts_tags,
    line_values,
    paper_values,
    parameters_of,
    parameters_of_experiment,
    parameters_of_finding,
    settings_of,
    summary_values,
    system_values,
    table_values,
    title_of_finding,
    values_of_finding,
)

FORBIDDEN = re.compile(r"[^\w\-. /]")
"""Characters that MLflow refuses in the name of a metric."""
SYSTEM_METRICS = "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING"
"""MLflow's own variable; `true` asks for speed and memory as system metrics."""


class Mirror(ABC):
    """An experiment or a finding in MLflow.

    Each folder has a run there, which is made once, given the folder's files, and a status.

    Attributes:
        path: the directory of an experiment, or the JSON file of a finding.
        mlflow: the store; its `moves` tell of folders that were moved.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path if path.is_dir() else path.parent
        self.store = store_of(self.folder)
        self.mlflow = MlflowStore(self.store)

    @abstractmethod
    def deliver(self) -> None:
        """Delivers what is new.

        Raises:
            UserError: naming every broken run, after all others are delivered.
            Exception: whatever MLflow raises where the store cannot be reached; what was
                delivered until then is noted and not delivered again.
        """

    def forget(self) -> None:
        """Deletes the runs of all folders from the store, so that all is delivered anew."""
        for folder in self.folders():
            notes = Delivered.read(folder, self.store)
            if notes.run_id is not None:
                self.mlflow.delete(notes.run_id)
            Delivered(self.store.uri).write(folder)

    def folders(self) -> list[Path]:
        """Lists the folders that have a run in the store."""
        return [self.folder]

    def ensure_run(
        self, folder: Path, home: str, name: str, tags: Mapping[str, str], started: float = 0.0
    ) -> Delivered:
        """Returns the notes of `folder`, whose MLflow run exists from now on."""
        notes = Delivered.read(folder, self.store)
        if notes.run_id is not None and not self.mlflow.exists(notes.run_id):
            notes = Delivered(self.store.uri)
        if notes.run_id is None:
            notes.experiment_id = home
            notes.write(folder)
            notes.run_id = self.mlflow.find(home, notes.token) or self.mlflow.create(
                home, name, notes.token, tags, started
            )
            notes.write(folder)
        return notes

    def deliver_files(self, folder: Path, notes: Delivered, patterns: tuple[str, ...]) -> None:
        """Uploads what is new or changed."""
        for path, digest in notes.changed(folder, patterns):
            below = path.relative_to(folder)
            inside = str(below.parent) if below.parent != Path() else None
            self.mlflow.log_file(notes.run, path, inside)
            notes.files[str(below)] = digest
            notes.write(folder)

    def log(self, run: str, values: Iterable[Value], stamp: int) -> None:
        """Logs numbers at one time, in milliseconds since the epoch."""
        points = (Point(FORBIDDEN.sub("_", k), v, stamp, step) for k, v, step in values)
        self.mlflow.log_points(run, list(points))

    def set_status(self, folder: Path, notes: Delivered, status: str, ended: float) -> None:
        """Sets MLflow's word for the state, if it is another one."""
        if notes.status == status:
            return
        self.mlflow.set_status(notes.run, status, ended)
        notes.status = status
        notes.write(folder)


class ExperimentMirror(Mirror):
    """An experiment of MLflow with a parent run, and a child for each run."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.directory = ExperimentDirectory(path)

    def folders(self) -> list[Path]:
        return [*(run.path for run in self.directory.runs()), self.folder]

    def deliver(self) -> None:
        experiment = self.directory.read_spec()
        home = self.mlflow.experiment_id(experiment.name)
        runs = started_runs(self.directory)
        status = overall_status(runs)
        folder = self.folder
        tags = {"txlbench.experiment_dir": str(folder.resolve())}
        parent = self.ensure_run(folder, home, experiment.name, tags)
        self._describe(experiment, home, parent)
        broken = damaged_runs(self.directory)
        for run in runs:
            try:
                self._deliver_run(run, experiment, home, parent)
            except UserError as error:  # its files are not what they should be; others' are
                broken.append(str(error))
        self.deliver_files(folder, parent, EXPERIMENT_FILES)
        self.set_status(folder, parent, status, ended=time.time())
        if broken:
            raise UserError(" | ".join(broken))

    def _deliver_run(
        self, run: RunDirectory, experiment: Experiment, home: str, parent: Delivered
    ) -> None:
        status = mlflow_status(run)  # before its files are read: they are complete if it is
        name, config = name_and_config(run, experiment)
        recorded = run.read_status()
        when = recorded.started or 0.0
        tags = {
            "mlflow.parentRunId": parent.run,
            "txlbench.run_id": run.id,
            "txlbench.run_dir": str(run.path.resolve()),
        }
        notes = self.ensure_run(run.path, home, name, tags, when)
        changed = {path.name for path, _ in notes.changed(run.path, RUN_FILES)}
        if changed & {"config.yaml", "summary.json"}:
            self.mlflow.log_parameters(notes.run, parameters_of(config))
            self.mlflow.set_tags(notes.run, {**settings_of(config), **self._source()})
        if "facts.json" in changed:
            self._log_facts(run, notes.run)
        self._deliver_metrics(run, notes, config.corpus.unit)
        stamp = milliseconds(recorded.updated or when)
        if "summary.json" in changed:
            self.log(notes.run, summary_values(run.read_summary(), config), stamp)
            self.log(notes.run, paper_values(run.read_paper()), stamp)
        if status != "RUNNING" and os.environ.get(SYSTEM_METRICS, "").lower() == "true":
            self._deliver_timings(run, notes)
        self.deliver_files(run.path, notes, RUN_FILES)
        self.set_status(run.path, notes, status, recorded.updated or when)

    def _describe(self, experiment: Experiment, home: str, parent: Delivered) -> None:
        """Shows results and what varies at first sight, on the experiment and its parent run."""
        folder, run = self.directory.path, parent.run
        changed = {path.name for path, _ in parent.changed(folder, EXPERIMENT_FILES)}
        if not changed & {"spec.yaml", "table.csv"}:
            return
        table, unit = self.directory.table("csv"), experiment.lines[0].configs[0].corpus.unit
        values = table_values(table, unit)
        runs = len({identity for line in experiment.lines for identity in line.run_ids})
        note = description(folder, values, self.directory.table("md"), runs)
        self.mlflow.describe_experiment(home, note)
        self.mlflow.set_tags(run, {NOTE: note, **self._source()})
        self.mlflow.log_parameters(run, parameters_of_experiment(experiment))
        self.log(run, [*values, *comparison_values(table, unit)], milliseconds(time.time()))

    def _source(self) -> dict[str, str]:
        """Returns who ran which command, as the tags that MLflow shows in columns of their own."""
        command = (self.directory.commands() or ["txlbench"])[-1]
        tags = {"mlflow.source.name": command, "mlflow.source.type": "LOCAL"}
        with contextlib.suppress(OSError, KeyError):  # a user without a name
            tags["mlflow.user"] = getpass.getuser()
        return tags

    def _log_facts(self, run: RunDirectory, mlflow_run: str) -> None:
        facts = run.read_facts()
        self.mlflow.set_tags(mlflow_run, facts_tags(facts))
        if facts.parameters is not None:
            self.mlflow.log_parameters(mlflow_run, {"parameters": str(facts.parameters)})
        corpus = facts.corpus
        if corpus.checksum is not None:
            profile = json.dumps({"tokens": corpus.tokens, "level": corpus.level})
            self.mlflow.log_dataset(mlflow_run, corpus.name or "corpus", corpus.checksum, profile)

    def _deliver_timings(self, run: RunDirectory, notes: Delivered) -> None:
        """Sends speed and memory as system metrics, once the run has ended."""
        for path, digest in notes.changed(run.path, ("timings.jsonl",)):
            points = [
                Point(name, value, int(1000 * line.time), step)
                for line in run.read_timings()
                for name, value, step in system_values(line)
            ]
            self.mlflow.log_points(notes.run, points)
            notes.files[path.name] = digest
            notes.write(run.path)

    def _deliver_metrics(self, run: RunDirectory, notes: Delivered, unit: str) -> None:
        """Sends the lines after the last delivered one, and notes the place after each batch."""
        start = next_offset(run, notes)
        if start is None:
            return
        clock = Clock(run)
        waiting: list[Point] = []
        for line, offset in read_json_lines(run.metrics_file, start):
            found = parse_line(run.metrics_file, line, offset)
            stamp = clock.milliseconds(found.step)
            new = [
                Point(name, value, stamp, step) for name, value, step in line_values(found, unit)
            ]
            if len(waiting) + len(new) > METRICS_A_BATCH:
                self.mlflow.log_points(notes.run, waiting)
                notes.write(run.path)
                waiting = []
            waiting += new
            notes.offset = offset
        self.mlflow.log_points(notes.run, waiting)
        notes.write(run.path)


class FindingMirror(Mirror):
    """A run in the experiment of the finding's kind, with all its files."""

    def deliver(self) -> None:
        path, kind = self.path, self.path.stem
        finding, changed = read_finding(path, FINDINGS[path.name]), path.stat().st_mtime
        name = title_of_finding(kind, finding, self.folder.name)
        tags = {"txlbench.finding": str(path.resolve())}
        notes = self.ensure_run(self.folder, self.mlflow.experiment_id(kind), name, tags, changed)
        if any(notes.changed(self.folder, (path.name,))):
            parameters = parameters_of_finding(finding)
            if not notes.files:
                self.mlflow.log_parameters(notes.run, parameters)
            self.mlflow.set_tags(notes.run, parameters)
            self.log(notes.run, values_of_finding(finding), milliseconds(time.time()))
        self.deliver_files(self.folder, notes, files_of_finding(path))
        self.set_status(self.folder, notes, "FINISHED", changed)
