"""`txlbench figures`: every table and figure of results again, without training."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # A verb imports what it needs when it is called.
    from txlbench.records.experiment_directory import ExperimentDirectory


@click.command()
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
def figures(directories: tuple[Path, ...]) -> int:
    """Rebuild tables and figures without training.

    DIRECTORIES are experiments, results of `recl` and other verbs, or folders of them; without
    any, all below results/.
    """
    from txlbench.errors import ExitStatus
    from txlbench.records.findings import results_at
    from txlbench.reporting.findings import report_finding

    command = " ".join(["txlbench figures", *map(str, directories)])
    experiments, findings = results_at(directories)
    done = True
    for experiment in experiments:
        done &= _rebuild(experiment.path, partial(_experiment, experiment, command))
    for finding in findings:
        done &= _rebuild(finding, partial(report_finding, finding, command))
    return ExitStatus.DONE if done else ExitStatus.RUN_FAILED


def _experiment(directory: "ExperimentDirectory", command: str) -> tuple[Path, ...]:
    from txlbench.reporting.report import report

    written = report(directory, command)
    return (*written.tables, *written.figures)


def _rebuild(path: Path, write: Callable[[], tuple[Path, ...]]) -> bool:
    """Whether it could be rebuilt; says so in one line if not."""
    from txlbench.errors import UserError

    try:
        for made in write():
            click.echo(made)
    except (UserError, OSError) as error:
        click.echo(f"{path}: not rebuilt: {error}", err=True)
        return False
    return True
