"""Reading a model for its context losses under a progress bar, for every verb that does.

Lists of numbers as options take them: lengths, contexts (also 16:64:16), shares 0.1,0.5.

What a verb says of a finding: its table, its files, and what keeps it from MLflow.
"""

import time
from collections.abc import Iterable
from typing import Any

import click

MOST_NUMBERS = 10_000


class ContextList(click.ParamType):  # type: ignore[type-arg]  # generic in newer clicks only
    """Ascending whole numbers: divided by commas, or FIRST:LAST:STEP with the last included."""

    name = "A,B,...|FIRST:LAST:STEP"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            numbers = _spread(value)
        except ValueError:
            self.fail(f"{value!r} is neither A,B,... nor FIRST:LAST:STEP", param, ctx)
        if len(numbers) < 2 or numbers[0] < 1:
            self.fail(f"{value!r} has fewer than two contexts, or one below 1", param, ctx)
        return numbers


class LengthList(click.ParamType):  # type: ignore[type-arg]
    """Whole numbers divided by commas."""

    name = "A,B,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            lengths = tuple(int(part) for part in value.split(","))
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers", param, ctx)
        if min(lengths) < 1:
            self.fail(f"{value!r} has a length below 1", param, ctx)
        return lengths


class ShareList(click.ParamType):  # type: ignore[type-arg]
    """Shares above 0 and up to 1, divided by commas."""

    name = "R,S,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            shares = tuple(dict.fromkeys(float(part) for part in value.split(",")))
        except ValueError:
            self.fail(f"{value!r} is not a list of numbers", param, ctx)
        if not all(0 < share <= 1 for share in shares):
            self.fail(f"{value!r} has a share that is not above 0 and up to 1", param, ctx)
        return shares


def _spread(text: str) -> tuple[int, ...]:
    if ":" not in text:
        return tuple(sorted({int(part) for part in text.split(",")}))
    first, last, step = map(int, text.split(":"))
    numbers = range(first, last + 1, step) if step > 0 else range(0)
    if len(numbers) > MOST_NUMBERS:
        raise ValueError(f"more than {MOST_NUMBERS:,} numbers")
    return tuple(numbers)


def show(published: Any, warnings: Iterable[str] = ()) -> None:
    """Prints a `Published`."""
    for warning in (*warnings, *filter(None, [published.undelivered])):
        click.echo(f"Warning: {warning}", err=True)
    click.echo(published.written.text)
    for path in (published.path, *published.written.paths):
        click.echo(path)


SECONDS_A_LINE = 10.0


def losses_of(reference: str, request: Any) -> Any:
    """The model's losses as a `Subject`; only what is not kept yet needs PyTorch."""
    from rich.console import Console
    from rich.progress import Progress

    from txlbench.commands.stored_losses import context_losses_of

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{reference}: windows", total=None)
        lines = _Lines(reference, not console.is_terminal)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)
            lines.say(done, total)

        return context_losses_of(reference, request, progress)


class _Lines:
    """A line now and then, where no bar can be drawn."""

    def __init__(self, reference: str, is_wanted: bool) -> None:
        self._reference, self._is_wanted = reference, is_wanted
        self._next = time.monotonic() + SECONDS_A_LINE

    def say(self, done: int, total: int) -> None:
        if self._is_wanted and time.monotonic() > self._next:
            self._next = time.monotonic() + SECONDS_A_LINE
            click.echo(f"{self._reference}: {done:,} of {total:,} windows", err=True)
