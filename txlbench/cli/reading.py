"""Reading a model for its context losses under a progress bar, for every verb that does."""

import time
from typing import Any

import click

SECONDS_A_LINE = 10.0


def losses_of(reference: str, request: Any) -> Any:
    """The model's losses as a `Subject`; only what is not kept yet needs PyTorch."""
    from rich.console import Console
    from rich.progress import Progress

    from txlbench.execution.context_losses import context_losses_of

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
