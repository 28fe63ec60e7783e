"""`txlbench merge`: results of several machines become one, with its tables and its MLflow."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from txlbench.records.experiment_directory import RESULTS

if TYPE_CHECKING:
    from txlbench.execution.merge import Merged


@click.command()
@click.argument("directories", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    default=RESULTS,
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the experiments go.",
)
def merge(directories: tuple[Path, ...], out: Path) -> int:
    """Bring results of several machines together.

    DIRECTORIES are results folders, or single experiments. Runs are copied; a run that two of
    them have is taken once, from where it is farther on. Runs of one id with different content are
    refused before anything is copied. Tables, figures and the MLflow store are made again.
    """
    from txlbench.execution.merge import merge as merge_experiments
    from txlbench.records.experiment_directory import experiments_at

    merged = merge_experiments(experiments_at(directories), out)
    command = shlex.join(["txlbench", "merge", *map(str, directories), "--out", str(out)])
    return max([_publish(each, command) for each in merged], default=0)


def _publish(merged: "Merged", command: str) -> int:
    """Tables, figures and MLflow of one experiment; 1 if something of it could not be done."""
    from txlbench.errors import ExitStatus
    from txlbench.reporting.report import report
    from txlbench.tracking.mlflow_mirror import deliver

    path = merged.directory.path
    counts = {"copied": merged.copied, "known": merged.known, "replaced": merged.replaced}
    click.echo(f"{path}: {', '.join(f'{len(runs)} {what}' for what, runs in counts.items())}")
    complaints = [f"a run left out: {line}" for line in report(merged.directory, command).damage]
    if (reason := deliver(path, rebuild=True)) is not None:
        complaints.append(f"MLflow: {reason}")
    for complaint in complaints:
        click.echo(f"{path}: {complaint}", err=True)
    return ExitStatus.RUN_FAILED if complaints else ExitStatus.DONE
