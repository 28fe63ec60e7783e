"""Live progress of runs, and of models being read: bars on a terminal, plain lines elsewhere."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from txlbench.errors import UserError
from txlbench.records.schema import RunState
from txlbench.runs.plan import PlannedRun
from txlbench.runs.status import RunProgress, duration, progress_of

if TYPE_CHECKING:
    from txlbench.data.corpus import Corpus

PLAIN_SECONDS = 10.0
"""Between two lines of a run where there is no terminal."""
SHOWN_STATES = (RunState.RUNNING, RunState.TRAINED)


class ProgressDisplay:
    """A `Watcher` that prints: step, loss in the corpus's unit, tokens/s and time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._runs: dict[str, PlannedRun] = {}
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, tuple[float, str]] = {}
        self._next_look = 0.0
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[detail]}", markup=False),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
        )

    def warn(self, message: str) -> None:
        self._console.print(f"Warning: {message}", style="yellow", markup=False, highlight=False)

    def corpus(self, corpus: "Corpus") -> None:
        counts = ", ".join(f"{split} {count:,}" for split, count in corpus.tokens.items())
        self.say(f"{corpus.name}: {counts} tokens, {len(corpus.vocabulary):,} symbols")
        for warning in corpus.warnings:
            self.warn(warning)
        if any(corpus.unk_share.values()):
            shares = ", ".join(f"{split} {share:.1%}" for split, share in corpus.unk_share.items())
            self.warn(
                f"tokens that are <unk>: {shares}; they count as one symbol, so losses do not "
                "compare with those of another vocabulary"
            )

    def start(self, waiting: Sequence[PlannedRun], finished: int, jobs: int) -> None:
        done = f", {finished} done before" if finished else ""
        self.say(
            f"{len(waiting)} run{'s' * (len(waiting) > 1)}, {jobs} at a time{done}"
            if waiting
            else f"nothing to run{done}"
        )
        self._runs = {run.id: run for run in waiting}
        if self._console.is_terminal:
            self._bars.start()

    def tick(self) -> None:
        """Looks at the running runs, about once a second."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + 1.0
        for run in self._runs.values():
            with contextlib.suppress(UserError):  # a damaged run is told of elsewhere
                if run.directory.state in SHOWN_STATES:
                    self._show(run)

    def ended(self, run: PlannedRun, state: RunState) -> None:
        if run.id in self._tasks:
            total = run.config.train.max_step
            self._bars.update(self._tasks[run.id], completed=total, detail=str(state))
            self._bars.stop_task(self._tasks[run.id])
        error = None if state is RunState.DAMAGED else run.directory.read_status().error
        why = f": {error}" if error else ""
        self.say(f"{run.title}: {state}{why}")

    def stop(self) -> None:
        if self._console.is_terminal:
            self._bars.stop()

    def _show(self, run: PlannedRun) -> None:
        progress = progress_of(run.directory, run.config)
        if self._console.is_terminal:
            detail = _detail(progress)
            if run.id not in self._tasks:
                total = progress.max_step
                self._tasks[run.id] = self._bars.add_task(run.title, total=total, detail="")
            self._bars.update(self._tasks[run.id], completed=progress.step, detail=detail)
            return
        detail = _detail(progress) + _left(progress)
        said, before = self._said.get(run.id, (0.0, ""))
        if progress.step and detail != before and time.monotonic() - said > PLAIN_SECONDS:
            self._said[run.id] = (time.monotonic(), detail)
            self.say(f"{run.title}: {detail}")

    def say(self, message: str) -> None:
        self._console.print(message, markup=False, highlight=False, soft_wrap=True)


def _detail(progress: RunProgress) -> str:
    if progress.step >= progress.max_step:
        return "measuring"
    if not progress.loss:
        return "starting"
    done = f"step {progress.step}/{progress.max_step}"
    return f"{done}, {progress.loss}, {progress.tokens_per_second:,.0f} tokens/s"


def _left(progress: RunProgress) -> str:
    """Time left in words, where there is no bar that shows it."""
    if not progress.loss or not progress.seconds_left:
        return ""
    return f", {duration(progress.seconds_left)} left"


@contextlib.contextmanager
def window_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Shows how many windows of all models are read, and the time left: a bar on a terminal, else
    lines. Tells first how long it will take, and after Ctrl-C how to go on."""
    console = Console(stderr=True, emoji=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        display = _WindowDisplay(bar)
        try:
            yield display.progress
        except KeyboardInterrupt:
            if display.is_reading:
                display.say("What was read is kept: the same command goes on from there.")
            raise


class _WindowDisplay:
    """What is shown while windows are read, of all models together."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._tasks: list[TaskID] = []
        self._start: tuple[float, int] | None = None  # after the first, which warms up
        self._next_line = 0.0
        self.is_reading = False

    def progress(self, reference: str, done: int, total: int) -> None:
        """Shows that `reference` is being read, and the windows of all models."""
        now = time.monotonic()
        self.is_reading = done < total
        if not self._tasks:
            self._tasks = [self._bar.add_task(reference, total=total)]
            self.say(f"{total - done:,} windows to read")
        elif self._start is None:
            self._start, self._next_line = (now, done), now + 1.0
        elif now >= self._next_line:
            since, before = self._start
            left = duration((now - since) * (total - done) / (done - before))
            self.say(f"{reference}: {done:,} of {total:,} windows, {left} left")
            on_a_terminal = self._bar.console.is_terminal  # where the bar shows it from now on
            self._next_line = math.inf if on_a_terminal else now + PLAIN_SECONDS
        self._bar.update(self._tasks[0], description=reference, completed=done, total=total)

    def say(self, message: str) -> None:
        """A line above the bar."""
        self._bar.console.print(message, markup=False, highlight=False, soft_wrap=True)
