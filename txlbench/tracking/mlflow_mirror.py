"""The MLflow mirror: delivers what run directories hold and MLflow lacks, in one process.

`python -m txlbench.tracking.mlflow_mirror EXPERIMENT_DIR [--follow]`. Training never imports
MLflow; the files are the backlog, so a server that stops costs nothing but a later delivery.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from txlbench.config.expansion import Experiment
from txlbench.errors import ExitStatus, UserError
from txlbench.files import read_json_lines
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.run_directory import RunDirectory, checked_line
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
from txlbench.tracking.folder_mirror import FolderMirror
from txlbench.tracking.following import follow
from txlbench.tracking.mlflow_store import METRICS_A_BATCH, Point, milliseconds, reason_of, silence
from txlbench.tracking.numbers import Clock, line_values, summary_values
from txlbench.tracking.parameters import parameters_of, settings_of
from txlbench.tracking.store import store_of


class Mirror:
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
        when = run.read_status().get("started", 0.0)
        tags = {
            "mlflow.parentRunId": parent.run,
            "txlbench.run_id": run.id,
            "txlbench.run_dir": str(run.path.resolve()),
        }
        notes = self._folders.ensure_run(run.path, home, name, tags, when)
        if not notes.files:
            self._mlflow.log_parameters(notes.run, parameters_of(config))
            self._mlflow.set_tags(notes.run, settings_of(config))
        self._deliver_metrics(run, notes)
        if "summary.json" in {path.name for path, _ in notes.changed(run.path, RUN_FILES)}:
            self._mlflow.set_tags(notes.run, settings_of(config))
            values = summary_values(run.read_summary(), config)
            stamp = milliseconds(run.read_status().get("updated", when))
            self._mlflow.log_points(notes.run, [Point(k, v, stamp, step) for k, v, step in values])
        self._folders.deliver_files(run.path, notes, RUN_FILES)
        self._folders.set_status(run.path, notes, status, run.read_status().get("updated", when))

    def _deliver_metrics(self, run: RunDirectory, notes: Delivered) -> None:
        """Sends the lines after the last delivered one, and notes the place after each batch."""
        start = next_offset(run, notes)
        if start is None:
            return
        clock = Clock(run)
        waiting: list[Point] = []
        for line, offset in read_json_lines(run.metrics_file, start):
            step = int(checked_line(run.metrics_file, line, offset)["step"])
            stamp = clock.milliseconds(step)
            new = [Point(name, value, stamp, step) for name, value in line_values(line)]
            if len(waiting) + len(new) > METRICS_A_BATCH:
                self._mlflow.log_points(notes.run, waiting)
                notes.write(run.path)
                waiting = []
            waiting += new
            notes.offset = offset
        self._mlflow.log_points(notes.run, waiting)
        notes.write(run.path)


def deliver(directory: Path, rebuild: bool = False) -> str | None:
    """Delivers what is new of the experiment in `directory`; why not, in one line, if it failed.

    Args:
        rebuild: delete its runs from the store first and deliver everything anew.
    """
    silence()
    try:
        with store_of(directory).locked():
            mirror = Mirror(directory)
            if rebuild:
                mirror.forget()
            mirror.deliver()
    except Exception as error:  # whatever a store does must not stop whoever runs beside us
        return reason_of(error)
    return None


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

    if given.follow:
        follow(attempt)
    else:
        attempt()
    if reason is not None:
        print(what_is_left(given.directory, reason))
    return ExitStatus.DONE if reason is None else ExitStatus.RUN_FAILED


if __name__ == "__main__":
    sys.exit(main())
