"""Runs that begin anew because the experiment file changed: what differs from what is on disk."""

from collections.abc import Sequence

from txlbench.config.identity import decisive_settings, differences
from txlbench.errors import UserError
from txlbench.execution.plan import PlannedRun
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.run_directory import RunDirectory
from txlbench.records.states import RunState


def renewed(plan: Sequence[PlannedRun], directory: ExperimentDirectory) -> list[str]:
    """A line for each planned run that has not begun while one of its label and seed has.

    Only runs that the plan no longer has are compared; of several the one nearest to it.
    """
    planned = {run.id for run in plan}
    left = [run for run in directory.runs() if run.id not in planned]
    fresh = [run for run in plan if run.directory.state is RunState.QUEUED]
    lines = (_line(run, left) for run in fresh)
    return [line for line in lines if line is not None]


def _line(run: PlannedRun, left: Sequence[RunDirectory]) -> str | None:
    new = decisive_settings(run.config)
    found = []
    for other in left:
        try:
            if other.read_label() not in run.labels:
                continue
            old = decisive_settings(other.read_config())
        except (UserError, OSError):
            continue
        if old["seed"] == new["seed"]:
            found.append((differences(old, new), other.id))
    if not found:
        return None
    changed, kept = min(found, key=lambda each: len(each[0]))
    return f"{run.title} begins anew, as {', '.join(changed)}; {kept} is kept"
