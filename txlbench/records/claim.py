"""A run belongs to the process that works on it, until that process ends, however it ends."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from txlbench.records.run_directory import RunDirectory


@contextmanager
def claimed(run: RunDirectory) -> Iterator[bool]:
    """Holds the run's lock inside; yields False, and holds nothing, if another process has it.

    The system drops the lock with the process, so a dead one never holds it.
    """
    with (run.path / ".claim").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
