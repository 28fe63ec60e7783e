"""`txlbench sync`: what MLflow lacks is delivered, or its store made again."""

from pathlib import Path

import click


@click.command()
@click.argument("directories", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--rebuild", is_flag=True, help="Delete the experiment's runs from MLflow and deliver all anew."
)
def sync(directories: tuple[Path, ...], rebuild: bool) -> int:
    """Deliver results to MLflow, or rebuild its store.

    DIRECTORIES are experiments, or folders of them; without any, all below results/.
    """
    from txlbench.errors import ExitStatus
    from txlbench.records.experiment_directory import experiments_at
    from txlbench.tracking.backlog import nothing_to_deliver, what_is_left
    from txlbench.tracking.store import ui_command

    status = ExitStatus.DONE
    for directory in experiments_at(directories):
        path = directory.path
        if not rebuild and nothing_to_deliver(path):
            click.echo(f"{path}: nothing new; {ui_command(path)}")
            continue
        from txlbench.tracking.mlflow_mirror import deliver

        reason = deliver(path, rebuild)
        if reason is None:
            click.echo(f"{path}: delivered; {ui_command(path)}")
        else:
            click.echo(what_is_left(path, reason), err=True)
            status = ExitStatus.RUN_FAILED
    return status
