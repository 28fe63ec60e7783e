"""Launcher `process`: a pool of worker processes on this machine, one a run, a few at once."""

import signal
import time
from collections.abc import Mapping
from dataclasses import replace

from txlbench.machine import Devices, worker_environment
from txlbench.records.schema import RunState
from txlbench.runs.executors.executor import Executor
from txlbench.runs.job import SAVING, Job, held_back
from txlbench.runs.worker_process import GRACE_SECONDS, WorkerProcess


class ProcessPool(Executor):
    """Starts a process for each job, `devices.jobs` at once.

    Args:
        devices: where runs go and how many at once.
        environment: what processes inherit; threads and allocator are set over it.
    """

    def __init__(self, devices: Devices, environment: Mapping[str, str]) -> None:
        super().__init__(devices.jobs)
        self._devices = devices
        self._environment = worker_environment(devices.threads, environment)
        self._running: list[WorkerProcess] = []

    @property
    def running(self) -> int:
        return len(self._running)

    def start(self, job: Job) -> None:
        taken = [name for worker in self._running for name in worker.job.device.split(",")]
        names = sorted(self._devices.names, key=taken.count)[: job.processes]
        with held_back():  # until the process is one of those that a signal is passed on to
            worker = WorkerProcess(replace(job, device=",".join(names)), self._environment)
            self._running.append(worker)
        worker.begin()

    def collect(self) -> list[tuple[Job, RunState]]:
        over = [worker for worker in self._running if worker.is_over]
        self._running = [worker for worker in self._running if worker not in over]
        return [(worker.job, worker.outcome()) for worker in over]

    def save(self) -> None:
        self._send(SAVING)

    def stop(self) -> None:
        """Kills those that take longer than a while for their checkpoints."""
        self._send(signal.SIGTERM)
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in self._running:
            worker.wait(deadline - time.monotonic())
            worker.outcome(asked_to_stop=True)
        self._running = []

    def _send(self, number: signal.Signals) -> None:
        for worker in self._running:
            worker.send(number)
