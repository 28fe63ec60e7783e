"""Writes the checkpoints and log lines of a training, and reads the weights that are measured.

A disk that refuses is tried again at the next checkpoint; a damaged best checkpoint is made again
from another one of the same step.
"""

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from txlbench.config.identity import differences
from txlbench.errors import UserError
from txlbench.files import LineLog, retry_io
from txlbench.records.run_directory import RunDirectory
from txlbench.training.checkpoint import (
    SCHEMA,
    CheckpointSet,
    best_content,
    evaluation_weights,
    load,
    restore,
    set_aside,
    whole_memories,
    write_best,
)
from txlbench.training.state import TrainingState
from txlbench.world import ALONE, World


def best_checkpoint(run: RunDirectory) -> dict[str, Any]:
    """The content of the best checkpoint.

    A damaged one is written again from the last or the previous checkpoint if that is of the
    same step. If neither is, the checkpoints are set aside and the run counts as not trained.

    Raises:
        UserError: in the latter case.
    """
    checkpoints = CheckpointSet(run.checkpoints)
    try:
        return load(checkpoints.best)
    except UserError as error:
        training = run.read_summary().training
        step = training and training.best_step
        for _, content in checkpoints.newest_first():
            if content is not None and content["progress"]["step"] == step:
                weights = evaluation_weights(content)
                best = {"schema": SCHEMA, "model": weights, "progress": content["progress"]}
                write_best(checkpoints.best, best)
                run.note(f"{error.problem}; made again from a checkpoint of the same step")
                return best
        _forget_training(run)
        raise UserError(error.problem, "`txlbench ablate --retry` trains the run again") from error


def _forget_training(run: RunDirectory) -> None:
    """Sets the checkpoints aside, as training must begin anew to come by the best one again."""
    number = 1
    while (aside := run.path / f"checkpoints.damaged-{number}").exists():
        number += 1
    run.checkpoints.rename(aside)
    run.write_summary(run.read_summary().without("training"))


class Checkpointer:
    """Keeps one run's training; a disk that refuses stops nothing before the end.

    Where processes share the run, all call it alike and one of them writes.

    Args:
        settings: what decides the numbers, by dotted key; kept in checkpoints, and held against
            those of the checkpoint that training goes on from.
        machine: likewise what may move their last digits: threads, device, precision.
    """

    def __init__(
        self,
        run: RunDirectory,
        settings: Mapping[str, object],
        machine: Mapping[str, object],
        world: World = ALONE,
    ) -> None:
        self._run = run
        self._world = world
        self._settings = {"run": dict(settings), "machine": dict(machine)}
        self._checkpoints = CheckpointSet(run.checkpoints)
        self._metrics, self._timings = LineLog(run.metrics_file), LineLog(run.timings_file)
        self._best: dict[str, Any] | None = None
        self._fault: OSError | None = None
        self._notes: list[str] = []

    def resume(self, state: TrainingState) -> None:
        """Puts state and logs where the newest whole checkpoint found them, or starts afresh.

        Raises:
            UserError: if that checkpoint was made with other settings, saying which.
        """
        name = self._world.tell(self._resume_logs(state) if self._world.writes else "")
        if name and not self._world.writes:
            restore(load(self._checkpoints.directory / name), state, self._world)

    def _resume_logs(self, state: TrainingState) -> str:
        """Does so in the process that writes; returns the name of the checkpoint, if there is one.

        The others read the same: which one is whole may change while it is looked for.
        """
        self._run.check_claim()
        self._checkpoints.remove_remains()
        unusable, name = [], ""
        for path, content in self._checkpoints.newest_first():
            if content is None or content["metrics_bytes"] > self._metrics.size:
                unusable.append(path)
                continue
            self._compare(path, content.get("settings", {}))
            restore(content, state, self._world)
            self._metrics.truncate(content["metrics_bytes"])
            self._timings.truncate(content.get("timings_bytes", self._timings.size))
            name = path.name
            break
        else:
            self._metrics.truncate(0)
            self._timings.truncate(0)
        self._put_away(unusable, state.progress.step)
        return name

    def log(self, line: Mapping[str, object], timing: Mapping[str, object] | None = None) -> None:
        """Appends to the metrics, and to the timings; what is refused waits for the next save."""
        if not self._world.writes:
            return
        self._run.check_claim()
        self._metrics.append(line)
        if timing is not None:
            self._timings.append(timing)

    def save(self, state: TrainingState, best: bool) -> None:
        """Writes a checkpoint; if the disk refuses, the ones before stay and training goes on."""
        memories = whole_memories(state, self._world)
        if not self._world.writes:
            return
        if best:
            self._best = best_content(state)
        try:
            retry_io(lambda: self._write(state, memories))
        except OSError as error:
            self._fault = error
            self._note(f"{error.filename}: {error.strerror}; tried again at the next checkpoint")
        else:
            self._fault = None
            self._deliver_notes()

    def finish(self, state: TrainingState) -> None:
        """Tries once more to write what is not written.

        Raises:
            OSError: naming the file that the disk refuses still.
        """
        if any(self._world.agree(self._fault is not None)):
            self.save(state, best=False)
        if self._fault is not None:
            raise self._fault

    def _write(self, state: TrainingState, memories: Sequence[Mapping[str, Tensor]]) -> None:
        """The best first: a last checkpoint must never know of a best that is not there."""
        self._run.check_claim()
        if self._best is not None:
            write_best(self._checkpoints.best, self._best)
            self._best = None
        metrics, timings = self._metrics.sync(), self._timings.sync()
        self._checkpoints.save(state, metrics, timings, self._settings, memories)

    def _compare(self, path: Path, before: Mapping[str, Any]) -> None:
        changed = differences(before.get("run", {}), self._settings["run"])
        if changed:
            raise UserError(
                f"{path}: made with another configuration: {', '.join(changed)}",
                f"restore it, or move {self._run.path} away to train anew",
            )
        for each in differences(before.get("machine", {}), self._settings["machine"]):
            self._note(f"goes on where {each}: last digits may differ from an uninterrupted run")

    def _put_away(self, unusable: list[Path], step: int) -> None:
        if not unusable:
            return
        for path in unusable:
            set_aside(path)
        names = " and ".join(path.name for path in unusable)
        goes_on = f"goes on from step {step}" if step else "starts again"
        self._note(
            f"{self._run.checkpoints}: {names} damaged or without its metric lines, "
            f"set aside as *.damaged; training {goes_on}"
        )

    def _note(self, message: str) -> None:
        if message not in self._notes:
            self._notes.append(message)
        with contextlib.suppress(OSError):
            print(f"Warning: {message}", flush=True)
        self._deliver_notes()

    def _deliver_notes(self) -> None:
        """Where the disk refuses these too, they wait for the next checkpoint."""
        with contextlib.suppress(OSError):
            for message in self._notes:
                self._run.note(message)
