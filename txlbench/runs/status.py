"""The status of an experiment's runs: progress, what differs from the file, what can be deleted."""

import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from txlbench.config.base import displayed, shown
from txlbench.config.grid import Experiment
from txlbench.config.identity import decisive_settings, differences
from txlbench.config.run_config import RunConfig
from txlbench.errors import MissingPlugin, UserError
from txlbench.files import last_json_line
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.runs.plan import PlannedRun, make_plan


@dataclass(frozen=True)
class RunProgress:
    """How far the training of a run is.

    Attributes:
        loss: the latest one in the corpus's unit, as `valid 2.860 bpc`; empty before the first.
        tokens_per_second: 0 while unknown.
        seconds_left: of training; None while unknown.
    """

    step: int
    max_step: int
    loss: str
    tokens_per_second: float
    seconds_left: float | None


def progress_of(run: RunDirectory, config: RunConfig) -> RunProgress:
    """The progress by the last lines of metrics and timings; unreadable ones count as missing."""
    line, timing = _last(run.metrics_file), _last(run.timings_file)
    step, train = int(line.get("step", 0)), config.train
    kind = "train" if "train_loss" in line else "valid"
    loss, unit = line.get(f"{kind}_loss"), config.corpus.unit
    speed = timing.get("tokens_per_second", 0.0)
    left = (train.max_step - step) * train.batch_size * train.tgt_len
    return RunProgress(
        step,
        train.max_step,
        "" if loss is None else f"{kind} {shown(displayed(loss, unit), unit)} {unit}",
        speed,
        left / speed if speed else None,
    )


def _last(path: Path) -> dict[str, float]:
    try:
        line = last_json_line(path)
    except UserError:
        return {}
    if not isinstance(line, dict):
        return {}
    return {key: value for key, value in line.items() if isinstance(value, int | float)}


def status_lines(experiment: ExperimentDirectory) -> Iterator[tuple[str, bool]]:
    """(a line for each run, whether it tells of damage): those of the file, then the others."""
    try:
        spec = experiment.read_spec()
    except UserError as error:
        yield str(error), True
        for run in experiment.runs():
            yield _line(_title(run), run)
        return
    plan = make_plan(spec, experiment)
    for planned in plan:
        yield _line(planned.title, planned.directory)
    for label, missing in spec.unknown.items():
        yield f"{label}: not known here: {missing}", False
    others = _others(spec, plan, experiment)
    trials = [run for run, row in others.items() if row is not None]
    foreign = [run for run, row in others.items() if row is None]
    if trials:
        yield f"{_count(trials, 'trial')} of tuning that did not win", False
    for run in trials:
        yield _line(_title(run), run)
    if foreign and not spec.unknown:
        kept = "is kept; `txlbench prune` deletes it"
        if len(foreign) > 1:
            kept = "are kept; `txlbench prune` deletes them"
        yield f"{_count(foreign, 'run')} of other settings {kept}", False
    for run in foreign:
        yield _line(_title(run), run, _why_other(run, plan))


def _count(found: Sequence[object], noun: str) -> str:
    return f"{len(found)} {noun}{'s' * (len(found) > 1)}"


def _others(
    spec: Experiment, plan: Sequence[PlannedRun], experiment: ExperimentDirectory
) -> dict[RunDirectory, str | None]:
    """The runs that are not planned, each with the row that tuning tried it for.

    None where it was not: then it has other settings than the experiment file. A run that needs a
    plug-in which was not given is left out.
    """
    planned = {run.id for run in plan}
    found: dict[RunDirectory, str | None] = {}
    for run in experiment.runs():
        if run.id in planned:
            continue
        try:
            found[run] = _row_of_trial(run, spec)
        except MissingPlugin:
            continue
        except UserError:  # damaged, as its line says
            found[run] = None
    return found


def _row_of_trial(run: RunDirectory, spec: Experiment) -> str | None:
    """The row whose run this would be with other values of what was tuned; None if there is none.

    Raises:
        UserError: if the run's configuration cannot be read.
    """
    if run.state is RunState.IMPORTED:
        return None
    label, own = str(run.read_label()), decisive_settings(run.read_config())
    for line in spec.lines:
        ranges = line.tuned.ranges if line.tuned else spec.search
        if not ranges or not label.startswith(f"{line.label}, "):
            continue
        values = {key: own.get(key) for key in ranges}
        with contextlib.suppress(UserError):
            row = replace(spec, lines=(line,)).with_settings({line.label: values})
            if run.id in row.lines[0].run_ids:
                return line.label
    return None


def _line(title: str, run: RunDirectory, remark: str = "") -> tuple[str, bool]:
    if damage := run.damage():
        return f"{title}: {RunState.DAMAGED}  {damage}  [{run.id}]", True
    state = run.current_state
    if state is RunState.QUEUED:
        return f"{title}: not started  [{run.id}]", False
    recorded = run.read_status()
    parts = [str(state)]
    if state is not RunState.IMPORTED and (run.path / "config.yaml").exists():
        parts += _progress_parts(progress_of(run, run.read_config()), state)
    if since := recorded.updated or recorded.started:
        parts.append(_ago(time.time() - since))
    why = f"; {recorded.error}" if recorded.error else ""
    return f"{title}: {', '.join(parts)}{why}{remark}  [{run.id}]", False


def _progress_parts(progress: RunProgress, state: RunState) -> Iterator[str]:
    yield f"step {progress.step}/{progress.max_step}"
    if progress.loss:
        yield progress.loss
    if state is RunState.RUNNING and progress.seconds_left:
        yield f"{duration(progress.seconds_left)} left"


def _title(run: RunDirectory) -> str:
    """The label and seed of a run that the experiment file no longer has, else its id."""
    try:
        return f"{run.read_label()} (seed {run.read_config().seed})"
    except UserError:
        return run.id


def _why_other(run: RunDirectory, plan: Sequence[PlannedRun]) -> str:
    """The settings in which the run differs from the nearest run of the experiment file."""
    try:
        own = decisive_settings(run.read_config())
    except UserError:
        return ""
    changes = [differences(own, decisive_settings(each.config)) for each in plan]
    nearest = min(changes, key=len, default=[])
    return f"; {', '.join(nearest)}" if nearest else ""


def changed_runs(plan: Sequence[PlannedRun], directory: ExperimentDirectory) -> list[str]:
    """A line for each planned run that has not begun while one of its label and seed has.

    Only runs that the plan no longer has are compared; of several the one nearest to it.
    """
    planned = {run.id for run in plan}
    left = [run for run in directory.runs() if run.id not in planned]
    not_begun = [run for run in plan if run.directory.state is RunState.QUEUED]
    lines = (_what_changed(run, left) for run in not_begun)
    return [line for line in lines if line is not None]


def _what_changed(run: PlannedRun, left: Sequence[RunDirectory]) -> str | None:
    new = decisive_settings(run.config)
    found = []
    for other in left:
        try:
            if other.read_label() not in run.labels:
                continue
            old = decisive_settings(other.read_config())
        except (UserError, OSError):
            continue
        if old["seed"] == new["seed"]:
            found.append((differences(old, new), other.id))
    if not found:
        return None
    changed, kept = min(found, key=lambda each: len(each[0]))
    return f"{run.title} begins anew, as {', '.join(changed)}; {kept} is kept"


def duration(seconds: float) -> str:
    """A time as people read it: `1:05` minutes, `2:05:00` hours, from two days on in words."""
    for size, unit in ((365 * 86400, "years"), (30 * 86400, "months"), (86400, "days")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(max(0, seconds))} seconds ago"


@dataclass(frozen=True)
class Spare:
    """A file or directory that no result needs, and why."""

    path: Path
    reason: str

    @property
    def size(self) -> int:
        """Bytes on disk."""
        files = [self.path] if self.path.is_file() else self.path.rglob("*")
        return sum(file.stat().st_size for file in files if file.is_file())

    def delete(self) -> None:
        """Deletes it."""
        shutil.rmtree(self.path) if self.path.is_dir() else self.path.unlink()


def spares(experiment: ExperimentDirectory) -> Iterator[Spare]:
    """What can be deleted: runs of other settings, set-aside runs, and resumed-from checkpoints.

    Trials of tuning that lost are among them; those that have not ended are left out, as are runs
    that a process works on, and the checkpoints of runs that may still resume.

    Raises:
        UserError: if the experiment file cannot be read, or a row of it needs a plug-in that was
            not given, as then no run is known to be spare.
    """
    spec = experiment.read_spec().whole()
    plan = make_plan(spec, experiment)
    others = _others(spec, plan, experiment)
    for run in experiment.runs():
        if run.is_worked_on:
            continue
        if (row := others.get(run)) is not None:
            state = run.current_state
            if state.is_bad or state in (RunState.TRAINED, RunState.FINISHED):
                yield Spare(run.path, f"a trial of tuning '{row}' that did not win")
        elif run in others and run.state is not RunState.IMPORTED:
            yield Spare(run.path, f"a run of other settings{_why_other(run, plan)}")
        elif run.current_state is RunState.FINISHED:
            previous = run.checkpoints / "previous.pt"
            if previous.is_file():
                yield Spare(previous, "the last checkpoint but one of a finished run")
    for path in sorted(experiment.runs_directory.glob("*.stale-*")):
        yield Spare(path, "a run on an earlier version of the corpus")
