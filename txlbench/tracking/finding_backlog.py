"""What MLflow lacks of a finding; imports no MLflow."""

from pathlib import Path

from txlbench.tracking.backlog import Delivered
from txlbench.tracking.store import store_of


def files_of_finding(path: Path) -> tuple[str, ...]:
    """Patterns of the files that belong to the finding at `path`."""
    return f"{path.stem}.*", "figures/*"


def nothing_to_deliver_of(path: Path) -> bool:
    """Whether the store has all there is of the finding at `path`."""
    folder, store = path.parent, store_of(path.parent)
    notes = Delivered.read(folder, store)
    if notes.run_id is None or any(notes.changed(folder, files_of_finding(path))):
        return False
    return not store.lacks([notes.run_id])


def finding_left(path: Path, reason: str) -> str:
    """One line: what MLflow lacks, why, and how to deliver it."""
    return f"{path}: MLflow lacks it ({reason}); deliver it with `txlbench sync {path.parent}`"
