"""The MLflow mirror: delivers what run directories hold and MLflow lacks, in one process.

`python -m txlbench.tracking.run_mirror EXPERIMENT_DIR [--follow]` delivers once, or again and again
beside a running experiment. Training never imports MLflow; the files are the backlog, so a server
that stops costs nothing but a later delivery.
"""

import argparse
import contextlib
import getpass
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from txlbench.config.grid import Experiment
from txlbench.errors import ExitStatus, UserError
from txlbench.files import read_json_lines
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.run_directory import RunDirectory, parse_line
from txlbench.tracking.backlog import (
    EXPERIMENT_FILES,
    RUN_FILES,
    Delivered,
    damaged_runs,
    mlflow_status,
    name_and_config,
    next_offset,
    overall_status,
    started_runs,
    what_is_left,
)
from txlbench.tracking.client import (
    METRICS_A_BATCH,
    NOTE,
    MlflowStore,
    Point,
    milliseconds,
    reason_of,
    silence,
)
from txlbench.tracking.store import Store, store_of
from txlbench.tracking.values import (
    Clock,
    Value,
    description,
    facts_tags,
    line_values,
    paper_values,
    parameters_of,
    parameters_of_experiment,
    settings_of,
    summary_values,
    system_values,
    table_values,
)

SYSTEM_METRICS = "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING"
"""MLflow's own variable; `true` asks for speed and memory as system metrics."""


class FolderMirror:
    """The MLflow run of one folder: made once, given the folder's files, and a status."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.mlflow = MlflowStore(store)

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

    def forget(self, folder: Path) -> None:
        """Deletes the folder's run from the store, so that all of it is delivered anew."""
        notes = Delivered.read(folder, self.store)
        if notes.run_id is not None:
            self.mlflow.delete(notes.run_id)
        Delivered(self.store.uri).write(folder)

    def deliver_files(self, folder: Path, notes: Delivered, patterns: tuple[str, ...]) -> None:
        """Uploads what is new or changed."""
        for path, digest in notes.changed(folder, patterns):
            below = path.relative_to(folder)
            inside = str(below.parent) if below.parent != Path() else None
            self.mlflow.log_file(notes.run, path, inside)
            notes.files[str(below)] = digest
            notes.write(folder)

    def set_status(self, folder: Path, notes: Delivered, status: str, ended: float) -> None:
        """Sets MLflow's word for the state, if it is another one."""
        if notes.status == status:
            return
        self.mlflow.set_status(notes.run, status, ended)
        notes.status = status
        notes.write(folder)


POLL_SECONDS = 4.0
"""At least, between two deliveries."""
LARGEST_SHARE = 0.01
"""Of one core's time that deliveries may take: after a dear one the next waits longer."""
LAST_WAITS = (0.0, 2.0, 5.0)
"""Seconds before each try of the last delivery."""
LAST_SECONDS = 30.0
"""After which no further try of the last delivery begins: a server may accept and never answer."""
NICENESS = 5
"""Training comes first on a machine with few cores."""


def follow(attempt: Callable[[], bool]) -> bool:
    """Calls `attempt` until standard input is closed, and then until it succeeds or was refused
    often enough; returns whether the last one succeeded.

    An interrupt from the keyboard reaches the whole process group. It is left to the parent,
    which closes our input when its own work is put away.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    pause = POLL_SECONDS
    while not _input_closes_within(pause):
        begun = time.process_time()
        attempt()
        pause = max(POLL_SECONDS, (time.process_time() - begun) / LARGEST_SHARE)
    deadline = time.monotonic() + LAST_SECONDS
    for wait in LAST_WAITS:
        time.sleep(wait)
        if attempt():
            return True
        if time.monotonic() > deadline:
            break
    return False


def _input_closes_within(seconds: float) -> bool:
    """Waits until standard input ends, at most `seconds`; what it carries is ignored."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([sys.stdin], [], [], left)
        if ready and not os.read(sys.stdin.fileno(), 4096):
            return True
    return False


class ExperimentMirror:
    """One experiment's side of MLflow: an experiment, a parent run, and a child for each run."""

    def __init__(self, directory: Path) -> None:
        self.directory = ExperimentDirectory(directory)
        self._folders = FolderMirror(store_of(directory))
        self._mlflow = self._folders.mlflow

    def deliver(self) -> None:
        """Delivers what is new.

        Raises:
            UserError: naming every broken run, after all others are delivered.
            Exception: whatever MLflow raises where the store cannot be reached; what was
                delivered until then is noted and not delivered again.
        """
        experiment = self.directory.read_spec()
        home = self._mlflow.experiment_id(experiment.name)
        runs = started_runs(self.directory)
        status = overall_status(runs)
        folder = self.directory.path
        tags = {"txlbench.experiment_dir": str(folder.resolve())}
        parent = self._folders.ensure_run(folder, home, experiment.name, tags)
        self._describe(experiment, home, parent)
        broken = damaged_runs(self.directory)
        for run in runs:
            try:
                self._deliver_run(run, experiment, home, parent)
            except UserError as error:  # its files are not what they should be; others' are
                broken.append(str(error))
        self._folders.deliver_files(folder, parent, EXPERIMENT_FILES)
        self._folders.set_status(folder, parent, status, ended=time.time())
        if broken:
            raise UserError(" | ".join(broken))

    @property
    def moves(self) -> list[str]:
        """Lines about experiments whose folder was moved or copied."""
        return self._mlflow.moves

    def forget(self) -> None:
        """Deletes this experiment's runs from the store, so that all is delivered anew."""
        folders = [run.path for run in self.directory.runs()]
        for folder in [*folders, self.directory.path]:
            self._folders.forget(folder)

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
        notes = self._folders.ensure_run(run.path, home, name, tags, when)
        changed = {path.name for path, _ in notes.changed(run.path, RUN_FILES)}
        if changed & {"config.yaml", "summary.json"}:
            self._mlflow.log_parameters(notes.run, parameters_of(config))
            self._mlflow.set_tags(notes.run, {**settings_of(config), **self._source()})
        if "facts.json" in changed:
            self._log_facts(run, notes.run)
        self._deliver_metrics(run, notes, config.corpus.unit)
        stamp = milliseconds(recorded.updated or when)
        if "summary.json" in changed:
            self._log(notes.run, summary_values(run.read_summary(), config), stamp)
            self._log(notes.run, paper_values(run.read_paper()), stamp)
        if status != "RUNNING" and os.environ.get(SYSTEM_METRICS, "").lower() == "true":
            self._deliver_timings(run, notes)
        self._folders.deliver_files(run.path, notes, RUN_FILES)
        self._folders.set_status(run.path, notes, status, recorded.updated or when)

    def _describe(self, experiment: Experiment, home: str, parent: Delivered) -> None:
        """Shows results and what varies at first sight, on the experiment and its parent run."""
        folder, run = self.directory.path, parent.run
        changed = {path.name for path, _ in parent.changed(folder, EXPERIMENT_FILES)}
        if not changed & {"spec.yaml", "table.csv"}:
            return
        values = table_values(
            self.directory.table("csv"), experiment.lines[0].configs[0].corpus.unit
        )
        runs = len({identity for line in experiment.lines for identity in line.run_ids})
        note = description(folder, values, self.directory.table("md"), runs)
        self._mlflow.describe_experiment(home, note)
        self._mlflow.set_tags(run, {NOTE: note, **self._source()})
        self._mlflow.log_parameters(run, parameters_of_experiment(experiment))
        self._log(run, values, milliseconds(time.time()))

    def _source(self) -> dict[str, str]:
        """Returns who ran which command, as the tags that MLflow shows in columns of their own."""
        command = (self.directory.commands() or ["txlbench"])[-1]
        tags = {"mlflow.source.name": command, "mlflow.source.type": "LOCAL"}
        with contextlib.suppress(OSError, KeyError):  # a user without a name
            tags["mlflow.user"] = getpass.getuser()
        return tags

    def _log_facts(self, run: RunDirectory, mlflow_run: str) -> None:
        facts = run.read_facts()
        self._mlflow.set_tags(mlflow_run, facts_tags(facts))
        if facts.parameters is not None:
            self._mlflow.log_parameters(mlflow_run, {"parameters": str(facts.parameters)})
        corpus = facts.corpus
        if corpus.checksum is not None:
            profile = json.dumps({"tokens": corpus.tokens, "level": corpus.level})
            self._mlflow.log_dataset(mlflow_run, corpus.name or "corpus", corpus.checksum, profile)

    def _log(self, mlflow_run: str, values: Iterable[Value], stamp: int) -> None:
        self._mlflow.log_points(mlflow_run, [Point(k, v, stamp, step) for k, v, step in values])

    def _deliver_timings(self, run: RunDirectory, notes: Delivered) -> None:
        """Sends speed and memory as system metrics, once the run has ended."""
        for path, digest in notes.changed(run.path, ("timings.jsonl",)):
            points = [
                Point(name, value, int(1000 * line.time), step)
                for line in run.read_timings()
                for name, value, step in system_values(line)
            ]
            self._mlflow.log_points(notes.run, points)
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
                self._mlflow.log_points(notes.run, waiting)
                notes.write(run.path)
                waiting = []
            waiting += new
            notes.offset = offset
        self._mlflow.log_points(notes.run, waiting)
        notes.write(run.path)


def deliver(directory: Path, rebuild: bool = False) -> str | None:
    """Delivers what is new of the experiment in `directory`; prints what the user should know.

    Args:
        rebuild: delete its runs from the store first and deliver everything anew.

    Returns:
        Why it failed, in one line; None if it did not.
    """
    silence()
    try:
        with store_of(directory).locked():
            mirror = ExperimentMirror(directory)
            if rebuild:
                mirror.forget()
            mirror.deliver()
            print(*mirror.moves, sep="\n", end="\n" * bool(mirror.moves))
    except Exception as error:  # whatever a store does must not stop whoever runs beside us
        return reason_of(error)
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the process beside `ablate`."""
    parser = argparse.ArgumentParser(prog="txlbench.tracking.run_mirror", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--follow", action="store_true", help="until standard input is closed")
    given = parser.parse_args(arguments)
    reason: str | None = None

    def attempt() -> bool:
        nonlocal reason
        reason = deliver(given.directory)
        return reason is None

    if given.follow:
        follow(attempt)
    else:
        attempt()
    if reason is not None:
        print(what_is_left(given.directory, reason))
    return ExitStatus.DONE if reason is None else ExitStatus.RUN_FAILED


if __name__ == "__main__":
    sys.exit(main())
