"""A worker process as its parent sees it: started, asked to stop or save, and its outcome read."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from txlbench.errors import ExitStatus, UserError
from txlbench.records.claim import is_claimed
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import Failure, RunState
from txlbench.runs.failure import remedy
from txlbench.runs.job import Job, held_back
from txlbench.runs.worker import TAKEN

GRACE_SECONDS = 60.0
"""How long a run may take to write its checkpoint after it was asked to stop."""
RECORDED_ENDS = {
    RunState.FINISHED: ExitStatus.DONE,
    RunState.INTERRUPTED: ExitStatus.INTERRUPTED,
}
"""States that stand if the process ended accordingly; else they are left from an earlier one."""


class WorkerProcess:
    """A process that works on `job`; the pipe to it is its lifeline, its output the run's log.

    Args:
        environment: all of it, threads and allocator included.
        folder: its working directory; None for this process's.
    """

    def __init__(
        self, job: Job, environment: Mapping[str, str], folder: Path | None = None
    ) -> None:
        self.job = job
        self._log = RunDirectory(job.directory).log_file.open("a")
        with held_back():
            self.process = subprocess.Popen(
                [sys.executable, "-m", "txlbench.runs.worker"],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                text=True,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which passes it on
            )

    def begin(self) -> None:
        """Hands over the job; whoever passes signals on knows of the process before this."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # killed already; its end is seen later
            self.process.stdin.write(self.job.to_json() + "\n")
            self.process.stdin.flush()

    @property
    def is_over(self) -> bool:
        return self.process.poll() is not None

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float) -> None:
        """Waits for the end of a process that was asked to stop; kills one that takes longer."""
        try:
            self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def outcome(self, asked_to_stop: bool = False) -> RunState:
        """The state the run is in after the end of the process, which is recorded if it is not.

        A run that another process works on is running, whatever this one was asked.
        """
        self._close()
        run, code = RunDirectory(self.job.directory), self.process.returncode
        if code == TAKEN or is_claimed(run.path):
            return RunState.RUNNING
        state = run.current_state
        if state.is_bad or RECORDED_ENDS.get(state) == code:
            return state
        error: Failure | None = None
        if asked_to_stop or code == ExitStatus.INTERRUPTED:
            state = RunState.INTERRUPTED
        else:
            state, error = RunState.FAILED, _unrecorded_end(run, code)
        with contextlib.suppress(OSError):  # a full disk does not change how it ended
            run.set_state(state, error)
        return state

    def _close(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self._log.close()


def _unrecorded_end(run: RunDirectory, code: int) -> Failure:
    """The error of a process that was ended before it could tell."""
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    name = signal.Signals(-code).name if code < 0 else "exit"
    hint = ""
    if code == -signal.SIGKILL:  # by a person, or by a system that had no memory left
        with contextlib.suppress(UserError, OSError):
            hint = f" (out of memory? if so, {remedy(run.read_config())})"
    return Failure(type=name, message=f"ended by {how}{hint}", where="process")
