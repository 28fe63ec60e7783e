"""`txlbench status`: every run with its state, progress and last error."""

import time
from pathlib import Path

import click

from txlbench.errors import UserError
from txlbench.files import last_json_line
from txlbench.records.experiment_directory import (
    RESULTS,
    ExperimentDirectory,
    find_experiments,
)
from txlbench.records.run_directory import RunDirectory


@click.command()
@click.argument(
    "directory", default=RESULTS, type=click.Path(path_type=Path, exists=True, file_okay=False)
)
def status(directory: Path) -> None:
    """Show every run of DIRECTORY: an experiment, or all experiments below it.

    DIRECTORY is results/ unless given.
    """
    single = ExperimentDirectory(directory)
    experiments = [single] if single.spec_file.is_file() else list(find_experiments(directory))
    if not experiments:
        raise UserError(f"{directory}: no experiment here", "give an experiment's directory")
    for experiment in experiments:
        click.echo(experiment.path)
        for run in experiment.runs():
            click.echo(f"  {_describe(run)}")


def _describe(run: RunDirectory) -> str:
    """State, step, age and error of one run, in one line."""
    config, recorded = run.read_config(), run.read_status()
    step = (last_json_line(run.metrics_file) or {}).get("step", 0)
    since = recorded.get("updated", recorded.get("started"))
    age = f", {_ago(time.time() - since)}" if since else ""
    error = recorded.get("error")
    why = f"  {error['type']}: {error['message']}" if error else ""
    return f"{run.id}  {run.current_state}, step {step}/{config.train.max_step}{age}{why}"


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(max(0, seconds))} seconds ago"
