"""`txlbench figures`: every table and figure of finished experiments again, without training."""

from pathlib import Path

import click


@click.command()
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
def figures(directories: tuple[Path, ...]) -> int:
    """Rebuild tables and figures without training.

    DIRECTORIES are experiments, or folders of them; without any, all below results/.
    """
    from txlbench.errors import ExitStatus, UserError
    from txlbench.records.experiment_directory import experiments_at
    from txlbench.reporting.report import report

    command = " ".join(["txlbench figures", *map(str, directories)])
    status = ExitStatus.DONE
    for directory in experiments_at(directories):
        try:
            written = report(directory, command)
        except (UserError, OSError) as error:
            click.echo(f"{directory.path}: not rebuilt: {error}", err=True)
            status = ExitStatus.RUN_FAILED
            continue
        for line in written.damage:
            click.echo(f"{directory.path}: a run left out: {line}", err=True)
            status = ExitStatus.RUN_FAILED
        for path in (*written.tables, *written.figures):
            click.echo(path)
    return status
