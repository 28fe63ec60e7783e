"""The worker process: reads a job, executes its run, and leaves the outcome in the run's files.

Started as `python -m txlbench.runs.worker`, with the job as the first line of its standard
input. That pipe is also its lifeline: when the parent goes, however it goes, the pipe closes and
the run stops at the next step with a checkpoint. SIGTERM does the same; SIGUSR1 asks for a
checkpoint, after which training goes on.
"""

import os
import sys
import threading

from txlbench.errors import ExitStatus
from txlbench.records.claim import ClaimLost, claimed
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.runs.failure import record_failure
from txlbench.runs.job import Job
from txlbench.runs.ranks import execute_on_ranks, listen

TAKEN = 75
"""Exit status of a process that found another one at work on its run, or its work done."""


def main() -> int:
    """Runs the job on standard input; the exit status says how it ended."""
    stop, save = threading.Event(), threading.Event()
    job = Job.from_json(sys.stdin.readline())
    listen(os.dup(0), stop, save)
    run = RunDirectory(job.directory)
    with claimed(run.path) as claim:
        if claim is None or job.attempts not in (None, run.attempts):
            return TAKEN
        try:
            with claim.kept(lost=stop.set):
                state = _executed(job, stop, save)
        except ClaimLost as error:
            print(error, file=sys.stderr)
            return TAKEN
        except BaseException as error:
            if claim.is_lost():
                return TAKEN
            state = record_failure(run, error)
    if state.is_bad:
        return ExitStatus.RUN_FAILED
    return ExitStatus.DONE if state is RunState.FINISHED else ExitStatus.INTERRUPTED


def _executed(job: Job, stop: threading.Event, save: threading.Event) -> RunState:
    if job.processes > 1:
        return execute_on_ranks(job, stop, save)
    from txlbench.runs.train_run import execute

    return execute(job, stop.is_set, save)


if __name__ == "__main__":
    sys.exit(main())
