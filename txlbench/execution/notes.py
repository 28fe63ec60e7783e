"""What people should know of a run that ended, beside its state."""

from txlbench.execution.plan import PlannedRun
from txlbench.records.states import RunState


def notes_on(run: PlannedRun, state: RunState) -> list[str]:
    """The run's own notes, and a guess where it stopped without a word."""
    status = run.directory.read_status()
    notes = list(status.get("notes", []))
    if state is RunState.INTERRUPTED and "error" not in status:
        folder = run.directory.path.parent.parent
        notes.append(f"stopped by a signal, or the disk of {folder} is full; type it again")
    return notes
