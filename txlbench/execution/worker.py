"""The process that a run gets: reads a job, runs it, and leaves the outcome in the run's files.

Started as `python -m txlbench.execution.worker`, with the job as the first line of its standard
input. That pipe is also its lifeline: when the parent goes, however it goes, the pipe closes and
the run stops at the next step with a checkpoint. SIGTERM does the same.
"""

import contextlib
import os
import signal
import sys
import threading
import traceback
from typing import Any

from txlbench.errors import ExitStatus
from txlbench.execution.job import Job
from txlbench.records.claim import claimed
from txlbench.records.run_directory import RunDirectory
from txlbench.records.states import RunState

TAKEN = 75
"""Exit status of a process that found another one at work on its run, or its work done."""


def main() -> int:
    """Runs the job on standard input; the exit status says how it ended."""
    job = Job.from_json(sys.stdin.readline())
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=_watch_parent, args=(stop,), daemon=True).start()
    run = RunDirectory(job.directory)
    with claimed(run) as mine:
        if not mine or job.attempts not in (None, run.attempts):
            return TAKEN
        try:
            from txlbench.execution.runner import execute

            state = execute(job, stop.is_set)
        except BaseException as error:
            record_failure(run, error)
            return ExitStatus.RUN_FAILED
    return ExitStatus.DONE if state is RunState.FINISHED else ExitStatus.INTERRUPTED


def _watch_parent(stop: threading.Event) -> None:
    """Waits for the end of standard input, which is the end of the parent."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    stop.set()


def record_failure(run: RunDirectory, error: BaseException) -> None:
    """Writes the traceback to error.txt and the error's kind and place to status.json."""
    text = "".join(traceback.format_exception(error))
    print(text, file=sys.stderr, flush=True)
    state = RunState.DIVERGED if type(error).__name__ == "Diverged" else RunState.FAILED
    with contextlib.suppress(OSError):
        run.error_file.write_text(text)
        run.set_state(state, describe(error))


def describe(error: BaseException) -> dict[str, Any]:
    """Type, message and place of an error: two runs that fail alike have equal places."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
    message = " ".join(str(error).split()) or type(error).__name__
    return {"type": type(error).__name__, "message": message[:500], "where": place}


if __name__ == "__main__":
    sys.exit(main())
