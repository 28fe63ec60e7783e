"""Launcher `process`: a pool of worker processes on this machine, one a run, a few at once."""

import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from txlbench.machine import Devices, worker_environment
from txlbench.records.schema import RunState
from txlbench.runs.job import SAVING, Job, held_back
from txlbench.runs.worker_process import GRACE_SECONDS, WorkerProcess

POLL_SECONDS = 0.1


class ProcessPool:
    """Starts a process for each job, `devices.jobs` at once.

    Args:
        devices: where runs go and how many at once.
        environment: what processes inherit; threads and allocator are set over it.
    """

    def __init__(self, devices: Devices, environment: Mapping[str, str]) -> None:
        self.at_once = devices.jobs
        self._devices = devices
        self._environment = worker_environment(devices.threads, environment)
        self._running: list[WorkerProcess] = []

    def run(
        self,
        jobs: Iterable[Job],
        ended: Callable[[Job, RunState], bool],
        tick: Callable[[], None],
    ) -> None:
        """See `Executor.run`."""
        waiting, open_ = iter(jobs), True
        before = signal.signal(SAVING, lambda *_: self._send(SAVING))
        try:
            while open_ or self._running:
                while open_ and len(self._running) < self.at_once:
                    if (job := next(waiting, None)) is None:
                        open_ = False
                        break
                    self._start(job)
                if not self._running:
                    break
                for worker in self._collect():
                    open_ = ended(worker.job, worker.outcome()) and open_
                tick()
                time.sleep(POLL_SECONDS)
        finally:
            self._stop_all()
            signal.signal(SAVING, before)

    def _start(self, job: Job) -> None:
        taken = [worker.job.device for worker in self._running]
        device = min(self._devices.names, key=taken.count)
        with held_back():  # until the process is one of those that a signal is passed on to
            worker = WorkerProcess(replace(job, device=device), self._environment)
            self._running.append(worker)
        worker.begin()

    def _collect(self) -> list[WorkerProcess]:
        """Takes out the processes that have ended."""
        over = [worker for worker in self._running if worker.is_over]
        self._running = [worker for worker in self._running if worker not in over]
        return over

    def _send(self, number: signal.Signals) -> None:
        for worker in self._running:
            worker.send(number)

    def _stop_all(self) -> None:
        """Asks every process to write a checkpoint and end; kills those that do not."""
        self._send(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self._running:
            worker.wait(deadline - time.monotonic())
            worker.outcome(asked_to_stop=True)
        self._running = []
