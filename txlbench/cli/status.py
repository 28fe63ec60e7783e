"""`txlbench status`: every run with its state, progress and last error."""

import time
from pathlib import Path

import click

from txlbench.errors import ExitStatus, UserError
from txlbench.files import last_json_line
from txlbench.records.experiment_directory import (
    RESULTS,
    ExperimentDirectory,
    find_experiments,
)
from txlbench.records.run_directory import RunDirectory
from txlbench.records.states import RunState


@click.command()
@click.argument(
    "directory", default=RESULTS, type=click.Path(path_type=Path, exists=True, file_okay=False)
)
def status(directory: Path) -> int:
    """Show every run of DIRECTORY: an experiment, or all experiments below it.

    DIRECTORY is results/ unless given. A run that nobody works on is never shown as running: what
    its process left undone when it died is `interrupted`. A run with a file that cannot be read
    is `damaged`; the exit status is 1 then.
    """
    single = ExperimentDirectory(directory)
    experiments = [single] if single.spec_file.is_file() else list(find_experiments(directory))
    if not experiments:
        raise UserError(f"{directory}: no experiment here", "give an experiment's directory")
    damaged = False
    for experiment in experiments:
        click.echo(experiment.path)
        try:
            experiment.read_spec()
        except UserError as error:
            damaged = True
            click.echo(f"  {error}")
        for run in experiment.runs():
            damage = run.damage()
            damaged |= bool(damage)
            told = f"{RunState.DAMAGED}  {damage}" if damage else _describe(run)
            click.echo(f"  {run.id}  {told}")
    return ExitStatus.RUN_FAILED if damaged else ExitStatus.DONE


def _describe(run: RunDirectory) -> str:
    """State, step, age and error of one run, in one line."""
    recorded = run.read_status()
    error = recorded.get("error", {})
    why = f"  {error.get('type', 'error')}: {error.get('message', '')}" if error else ""
    since = recorded.get("updated", recorded.get("started"))
    age = f", {_ago(time.time() - since)}" if since else ""
    return f"{run.current_state}{_progress(run)}{age}{why}"


def _progress(run: RunDirectory) -> str:
    """How many of its steps are done; of a run that is not configured yet, nothing."""
    if run.state is RunState.IMPORTED or not (run.path / "config.yaml").exists():
        return ""
    total = run.read_config().train.max_step
    line = last_json_line(run.metrics_file) or {}
    return f", step {line.get('step', 0)}/{total}"


def _ago(seconds: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(max(0, seconds))} seconds ago"
