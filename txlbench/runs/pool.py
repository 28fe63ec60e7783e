"""A pool of worker processes, one a run, a few at once; the parent starts and watches them."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import IO

from txlbench.errors import ExitStatus, UserError
from txlbench.machine import Devices, worker_environment
from txlbench.records.run_directory import RunDirectory, is_claimed
from txlbench.records.schema import Failure, RunState
from txlbench.runs.failure import remedy
from txlbench.runs.job import SAVING, Job, held_back
from txlbench.runs.worker import TAKEN

POLL_SECONDS = 0.1
GRACE_SECONDS = 60.0
"""How long a run may take to write its checkpoint after it was asked to stop."""
RECORDED_ENDS = {
    RunState.FINISHED: ExitStatus.DONE,
    RunState.INTERRUPTED: ExitStatus.INTERRUPTED,
}
"""States that stand if the process ended accordingly; else they are left from an earlier one."""


@dataclass
class _Worker:
    """A process, its job, the device it holds and the log it writes."""

    job: Job
    process: subprocess.Popen[str]
    log: IO[str]


class ProcessPool:
    """Starts a process for each job, `devices.jobs` at once.

    Args:
        devices: where runs go and how many at once.
        environment: what processes inherit; threads and allocator are set over it.
    """

    def __init__(self, devices: Devices, environment: Mapping[str, str]) -> None:
        self._devices = devices
        self._environment = worker_environment(devices.threads, environment)
        self._running: list[_Worker] = []

    def run(
        self,
        jobs: Iterable[Job],
        ended: Callable[[Job, RunState], bool],
        tick: Callable[[], None],
    ) -> None:
        """Runs all jobs; on any exception, an interrupt too, running ones are stopped first.

        SIGUSR1 is passed on to the runs, which write a checkpoint and go on.

        Args:
            jobs: each is asked for when there is a place for it.
            ended: told each outcome as it comes; False starts nothing further.
            tick: called a few times a second.
        """
        waiting, open_ = iter(jobs), True
        before = signal.signal(SAVING, lambda *_: self._send(SAVING))
        try:
            while open_ or self._running:
                while open_ and len(self._running) < self._devices.jobs:
                    if (job := next(waiting, None)) is None:
                        open_ = False
                        break
                    self._start(job)
                if not self._running:
                    break
                for worker in self._collect():
                    open_ = ended(worker.job, _outcome(worker)) and open_
                tick()
                time.sleep(POLL_SECONDS)
        finally:
            self._stop_all()
            signal.signal(SAVING, before)

    def _start(self, job: Job) -> None:
        taken = [worker.job.device for worker in self._running]
        device = min(self._devices.names, key=taken.count)
        placed = replace(job, device=device)
        log = RunDirectory(job.directory).log_file.open("a")
        with held_back():
            process = subprocess.Popen(
                [sys.executable, "-m", "txlbench.runs.worker"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
                env=self._environment,
                start_new_session=True,  # Ctrl-C reaches the parent alone, which passes it on
            )
            self._running.append(_Worker(placed, process, log))
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # killed already; its end is seen later
            process.stdin.write(placed.to_json() + "\n")
            process.stdin.flush()

    def _collect(self) -> list[_Worker]:
        """Takes out the processes that have ended."""
        over = [worker for worker in self._running if worker.process.poll() is not None]
        self._running = [worker for worker in self._running if worker not in over]
        for worker in over:
            _close(worker)
        return over

    def _send(self, number: signal.Signals) -> None:
        for worker in self._running:
            worker.process.send_signal(number)

    def _stop_all(self) -> None:
        """Asks every process to write a checkpoint and end; kills those that do not."""
        self._send(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self._running:
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            _close(worker)
            _outcome(worker, asked_to_stop=True)
        self._running = []


def _close(worker: _Worker) -> None:
    assert worker.process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        worker.process.stdin.close()
    worker.log.close()


def _outcome(worker: _Worker, asked_to_stop: bool = False) -> RunState:
    """The state the run is in; the end of a process that could not record it is recorded here.

    A run that another process works on is running, whatever this one was asked.
    """
    run, code = RunDirectory(worker.job.directory), worker.process.returncode
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


def _unrecorded_end(run: RunDirectory, code: int) -> Failure:
    """The error of a process that was ended before it could tell."""
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    name = signal.Signals(-code).name if code < 0 else "exit"
    hint = ""
    if code == -signal.SIGKILL:  # by a person, or by a system that had no memory left
        with contextlib.suppress(UserError, OSError):
            hint = f" (out of memory? if so, {remedy(run.read_config())})"
    return Failure(type=name, message=f"ended by {how}{hint}", where="process")
