"""`status --watch`: runs as they train, each with its curve, speed and time left."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rich.console import Console, Group, OverflowMethod
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from txlbench.config.base import displayed
from txlbench.errors import ExitStatus, UserError
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.runs.plan import PlannedRun, make_plan
from txlbench.runs.status import duration, progress_of

LOOK_SECONDS = 1.0
CURVE_WIDTH = 16
WIDE = 100
"""Columns of a terminal from which on curves have that width."""
NARROW = 76
"""Fewer columns have no room for speeds."""
WIDEST = 120
"""Columns beyond which numbers would stand too far from their titles."""
BLOCKS, ASCII_BLOCKS = "▁▂▃▄▅▆▇█", "_.-=+*#@"
SETTLED = 0.1
"""A curve leaves out this share of the steps, in which all losses fall from far above."""
STYLES = {
    RunState.RUNNING: "bold",
    RunState.FINISHED: "green",
    **{state: "red" for state in RunState if state.is_bad},
}
ENDED = (RunState.FINISHED, RunState.IMPORTED)
AT_WORK = (RunState.RUNNING, RunState.TRAINED)
"""States in which a run may be worked on: training, or being evaluated."""


def sparkline(values: Sequence[float], width: int, blocks: str = BLOCKS) -> str:
    """Means of `width` equal parts of `values` as characters, the least lowest."""
    if not values:
        return ""
    edges = [len(values) * part // width for part in range(width + 1)]
    parts = [values[a:b] for a, b in pairwise(edges) if b > a]
    means = [sum(part) / len(part) for part in parts]
    low, high = min(means), max(means)
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    return "".join(blocks[round((mean - low) * scale)] for mean in means)


def watch(experiments: Sequence[ExperimentDirectory], console: Console) -> int:
    """Shows the runs until all have ended, or until Ctrl-C; the exit status as of `status`.

    Raises:
        UserError: if `console` is not a terminal, or an experiment file cannot be read.
    """
    if not console.is_terminal:
        raise UserError("--watch: not a terminal", "drop --watch")
    plans = [(each, _Plan(make_plan(each.read_spec(), each))) for each in experiments]
    try:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                live.update(Group(*_page(plans, console)), refresh=True)
                if not any(plan.is_open for _, plan in plans):
                    break
                time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:  # the way to leave
        pass
    any_damage = any(RunState.DAMAGED in plan.states for _, plan in plans)
    return ExitStatus.RUN_FAILED if any_damage else ExitStatus.DONE


@dataclass
class _Plan:
    """The runs of an experiment, and what was read of them at the last look.

    Attributes:
        curves: run id -> size of its metrics when they were read, and its losses.
    """

    runs: Sequence[PlannedRun]
    states: list[RunState] = field(default_factory=list)
    curves: dict[str, tuple[int, list[float]]] = field(default_factory=dict)

    def look(self) -> None:
        """Reads the states anew."""
        self.states = [_state(run.directory) for run in self.runs]

    @property
    def is_open(self) -> bool:
        """Whether a run has not ended, so that it may go on."""
        return any(not (state.is_bad or state in ENDED) for state in self.states)

    def curve(self, run: PlannedRun) -> list[float]:
        """The training losses in the unit of the corpus, without the first steps."""
        path = run.directory.metrics_file
        size = path.stat().st_size if path.exists() else 0
        known, losses = self.curves.get(run.id, (0, []))
        if size != known:
            losses = list(_losses(run))
            self.curves[run.id] = (size, losses)
        return losses


def _state(run: RunDirectory) -> RunState:
    return RunState.DAMAGED if run.damage() else run.current_state


def _losses(run: PlannedRun) -> Iterator[float]:
    first, unit = SETTLED * run.config.train.max_step, run.config.corpus.unit
    lines = [line for line in run.directory.read_metrics() if line.train_loss is not None]
    for line in lines:
        if line.step >= first or line.step == lines[-1].step:
            yield displayed(line.train_loss or 0.0, unit)


def _page(
    plans: Sequence[tuple[ExperimentDirectory, _Plan]], console: Console
) -> Iterator[Text | Grid]:
    """For each experiment a line of counts, and the runs: where not all fit, those at work."""
    room = max(3, (console.height - 1) // len(plans) - 2)
    for experiment, plan in plans:
        plan.look()
        counts = Counter(plan.states)
        said = ", ".join(f"{counts[state]} {_word(state)}" for state in RunState if counts[state])
        yield Text(f"{experiment.path}: {said}", no_wrap=True, overflow="crop")
        found = list(zip(plan.runs, plan.states, strict=True))
        if len(found) > room:
            found.sort(key=lambda each: (each[1] not in AT_WORK, not each[1].is_bad))
        yield _grid(plan, found[:room], console)
        if len(found) > room:
            yield Text(f"  and {len(found) - room} more", style="dim")


def _word(state: RunState) -> str:
    return "not started" if state is RunState.QUEUED else str(state)


def _grid(plan: _Plan, runs: Sequence[tuple[PlannedRun, RunState]], console: Console) -> Grid:
    """A line for each run; on a narrow terminal curves are short and titles cut."""
    is_unicode = console.encoding.lower().startswith("utf")
    blocks = BLOCKS if is_unicode else ASCII_BLOCKS
    width = CURVE_WIDTH if console.width >= WIDE else CURVE_WIDTH // 2
    grid = Grid.grid(padding=(0, 2, 0, 0), expand=True)
    grid.width = min(console.width, WIDEST)
    overflow: OverflowMethod = "ellipsis" if is_unicode else "crop"
    grid.add_column(ratio=1, no_wrap=True, overflow=overflow)
    for justify in ("left", "left", "left", "right", "right"):
        grid.add_column(justify=justify, no_wrap=True, overflow=overflow)
    for run, state in runs:
        doing, curve, loss, speed, left = _cells(plan, run, state)
        speed = speed if console.width >= NARROW else ""
        style = STYLES.get(state, "")
        cells = [Text(doing, style), Text(sparkline(curve, width, blocks))]
        grid.add_row(Text(f"  {run.title}"), *cells, Text(loss), Text(speed), Text(left))
    return grid


def _cells(
    plan: _Plan, run: PlannedRun, state: RunState
) -> tuple[str, Sequence[float], str, str, str]:
    """What a run does, its curve, loss, speed and time left."""
    nothing = (_word(state), (), "", "", "")
    if state in (RunState.QUEUED, RunState.DAMAGED):
        return nothing
    try:
        progress, curve = progress_of(run.directory, run.config), plan.curve(run)
    except (UserError, OSError):  # a file that is being changed; the next look finds it whole
        return nothing
    if state not in AT_WORK:
        return _word(state), curve, progress.loss, "", ""
    if progress.step >= progress.max_step:
        return "measuring", curve, progress.loss, "", ""
    speed = f"{progress.tokens_per_second:,.0f} tok/s" if progress.tokens_per_second else ""
    left = f"{duration(progress.seconds_left)} left" if progress.seconds_left else ""
    done = f"{progress.step / progress.max_step:.0%} trained"
    return done, curve, progress.loss, speed, left
