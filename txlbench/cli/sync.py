"""`txlbench sync`: what MLflow lacks is delivered, or its store made again."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click


@click.command()
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--rebuild", is_flag=True, help="Delete the runs of these from MLflow and deliver all anew."
)
def sync(directories: tuple[Path, ...], rebuild: bool) -> int:
    """Deliver results to MLflow, or rebuild its store.

    DIRECTORIES are experiments, results of `recl` and other verbs, or folders of them; without
    any, all below results/.
    """
    from txlbench.errors import ExitStatus
    from txlbench.records.findings import results_at
    from txlbench.tracking.backlog import nothing_to_deliver
    from txlbench.tracking.finding_backlog import nothing_to_deliver_of

    experiments, findings = results_at(directories)
    whole = []
    for path in (each.path for each in experiments):
        new = rebuild or not nothing_to_deliver(path)
        whole.append(_deliver(path, path, partial(_experiment, path, rebuild) if new else None))
    for path in findings:
        new = rebuild or not nothing_to_deliver_of(path)
        whole.append(_deliver(path, path.parent, partial(_finding, path, rebuild) if new else None))
    return ExitStatus.DONE if all(whole) else ExitStatus.RUN_FAILED


def _experiment(path: Path, rebuild: bool) -> str | None:
    from txlbench.tracking.backlog import what_is_left
    from txlbench.tracking.mlflow_mirror import deliver

    reason = deliver(path, rebuild)
    return None if reason is None else what_is_left(path, reason)


def _finding(path: Path, rebuild: bool) -> str | None:
    from txlbench.tracking.finding_backlog import finding_left
    from txlbench.tracking.finding_mirror import deliver_finding

    reason = deliver_finding(path, rebuild)
    return None if reason is None else finding_left(path, reason)


def _deliver(path: Path, folder: Path, deliver: Callable[[], str | None] | None) -> bool:
    """Whether the store has everything now; says so, or what it lacks."""
    from txlbench.tracking.store import ui_command

    left = None if deliver is None else deliver()
    if left is None:
        done = "nothing new" if deliver is None else "delivered"
        click.echo(f"{path}: {done}; {ui_command(folder)}")
    else:
        click.echo(left, err=True)
    return left is None
