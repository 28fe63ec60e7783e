"""The states a run can be in."""

from enum import StrEnum


class RunState(StrEnum):
    """What became of a run so far; `status.json` holds it."""

    QUEUED = "queued"  # no status file yet
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # continues at the next call
    TRAINED = "trained"  # evaluations are missing
    FINISHED = "finished"
    FAILED = "failed"
    DIVERGED = "diverged"
    IMPORTED = "imported"
    DAMAGED = "damaged"  # never written: a file of the run cannot be read

    @property
    def is_bad(self) -> bool:
        """Whether the run ended without the numbers that were asked for."""
        return self in (RunState.FAILED, RunState.DIVERGED, RunState.DAMAGED)
