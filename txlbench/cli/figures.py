"""`txlbench figures`: every table and figure of results again, without training."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # A verb imports what it needs when it is called.
    from txlbench.records.experiment_directory import ExperimentDirectory

Made = tuple[tuple[Path, ...], tuple[str, ...]]
"""Files, and what is damaged and was left out."""


@click.command()
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
def figures(directories: tuple[Path, ...]) -> int:
    """Rebuild tables and figures without training.

    DIRECTORIES are experiments, results of `recl` and other verbs, or folders of them; without
    any, all below results/.
    """
    from txlbench.errors import ExitStatus
    from txlbench.records.findings import results_at

    command = " ".join(["txlbench figures", *map(str, directories)])
    experiments, findings = results_at(directories)
    whole = [_rebuild(each.path, partial(_experiment, each, command)) for each in experiments]
    whole += [_rebuild(each, partial(_finding, each, command)) for each in findings]
    return ExitStatus.DONE if all(whole) else ExitStatus.RUN_FAILED


def _experiment(directory: "ExperimentDirectory", command: str) -> Made:
    from txlbench.reporting.report import report

    written = report(directory, command)
    return (*written.tables, *written.figures), tuple(written.damage)


def _finding(path: Path, command: str) -> Made:
    from txlbench.reporting.findings import report_finding

    return report_finding(path, command).paths, ()


def _rebuild(path: Path, write: Callable[[], Made]) -> bool:
    """Whether all of it could be rebuilt; says what could not, a line each."""
    from txlbench.errors import UserError

    try:
        made, damage = write()
    except (UserError, OSError) as error:
        click.echo(f"{path}: not rebuilt: {error}", err=True)
        return False
    for line in damage:
        click.echo(f"{path}: a run left out: {line}", err=True)
    for each in made:
        click.echo(each)
    return not damage
