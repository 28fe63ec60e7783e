"""Reading a model for its context losses under a progress bar, for every verb that does."""

from typing import Any


def losses_of(reference: str, request: Any) -> Any:
    """The model's losses as a `Subject`; only what is not kept yet needs PyTorch."""
    from rich.console import Console
    from rich.progress import Progress

    from txlbench.execution.context_losses import context_losses_of

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(f"{reference}: windows", total=None)
        return context_losses_of(
            reference, request, lambda done, total: bar.update(task, completed=done, total=total)
        )
