"""A run belongs to the process that works on it, until that process ends, however it ends."""

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from txlbench.records.run_directory import RunDirectory

PATIENCE_SECONDS = 1.0
"""Whoever only looks, or writes a run's configuration, holds its lock for a moment."""
RETRY_SECONDS = 0.02


@contextmanager
def claimed(run: "RunDirectory", patience: float = PATIENCE_SECONDS) -> Iterator[bool]:
    """Holds the run's lock inside; yields False, and holds nothing, if another process has it.

    The system drops the lock with the process, so a dead one never holds it.
    """
    with _lock_file(run.path).open("a") as file:
        deadline = time.monotonic() + patience
        while not (mine := _lock(file, fcntl.LOCK_EX)) and time.monotonic() < deadline:
            time.sleep(RETRY_SECONDS)
        yield mine


def is_claimed(run: Path) -> bool:
    """Whether some process holds the lock of the run in directory `run`."""
    try:
        with _lock_file(run).open("rb") as file:
            return not _lock(file, fcntl.LOCK_SH)
    except OSError:  # no process ever worked on it here
        return False


def _lock_file(run: Path) -> Path:
    return run / ".claim"


def _lock(file: IO[str] | IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
