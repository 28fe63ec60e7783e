"""Runs under an outer torchrun: the first process ablates, and hands each job to all of them.

`torchrun --nproc-per-node 2 -m txlbench ablate FILE` starts as many processes of this command. The
others say nothing: they wait for jobs, and share each of them.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace

import torch

from txlbench.errors import UserError
from txlbench.machine import local_device
from txlbench.records.claim import ClaimLost, claimed
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.runs.executors.executor import Executor
from txlbench.runs.failure import record_failure
from txlbench.runs.job import SAVING, STOPPING, Job
from txlbench.runs.train_run import execute
from txlbench.training.loop import Diverged
from txlbench.world import RankLost, World, join


class TorchrunExecutor(Executor):
    """Executes one job after the other in all processes of a world.

    Args:
        device: as `--device` says.
    """

    def __init__(self, device: str) -> None:
        super().__init__(at_once=1)
        self._device = local_device(device)
        self._world = join(torch.device(self._device))
        self._ended: list[tuple[Job, RunState]] = []
        self._is_stopped = False

    @property
    def running(self) -> int:
        return len(self._ended)

    def start(self, job: Job) -> None:
        """Executes the job to its end; signals are for it meanwhile."""
        if self._is_stopped:
            raise KeyboardInterrupt
        with _signals() as (stop, save):
            self._ended.append((job, self._execute(job, stop, save)))
        self._is_stopped = stop.is_set()

    def collect(self) -> list[tuple[Job, RunState]]:
        ended, self._ended = self._ended, []
        return ended

    def save(self) -> None:
        """Nothing goes on between jobs."""

    def stop(self) -> None:
        """Nothing goes on between jobs."""

    def _execute(self, job: Job, stop: threading.Event, save: threading.Event) -> RunState:
        run = RunDirectory(job.directory)
        with claimed(run.path) as claim:
            if claim is None or job.attempts not in (None, run.attempts):
                return RunState.RUNNING
            try:
                with claim.kept(lost=stop.set):
                    self._world.tell(job.to_json())
                    return _shared(job, self._device, stop, save, self._world)
            except RankLost as error:
                run.set_state(RunState.INTERRUPTED)
                remedy = "type it again: training goes on from the last checkpoint"
                raise UserError(f"torchrun: a process was lost: {error}", remedy) from error
            except ClaimLost as error:
                raise UserError(str(error), "type it again for the other runs") from error

    def close(self) -> None:
        """Lets the other processes end."""
        with contextlib.suppress(RankLost):
            self._world.tell("")


def serve(device: str) -> None:
    """Shares the jobs that the first process tells of, until there are no more."""
    device = local_device(device)
    world = join(torch.device(device))
    with contextlib.suppress(RankLost, KeyboardInterrupt):
        while line := world.tell(""):
            with _signals() as (stop, save):
                _shared(Job.from_json(line), device, stop, save, world)


def _shared(
    job: Job, device: str, stop: threading.Event, save: threading.Event, world: World
) -> RunState:
    """Executes a job beside the other processes; what only one of them meets ends all of them."""
    run = RunDirectory(job.directory)
    try:
        return execute(replace(job, device=device), stop.is_set, save, world)
    except Diverged as error:  # in every process, at the same step
        return record_failure(run, error) if world.writes else RunState.DIVERGED
    except (RankLost, ClaimLost):
        raise
    except Exception as error:
        record_failure(run, error)
        raise UserError(
            f"{run.path}: failed: {error}", "type it again for the other runs"
        ) from None


@contextlib.contextmanager
def _signals() -> Iterator[tuple[threading.Event, threading.Event]]:
    """Inside, signals set the events of a request to stop, and of one to save."""
    stop, save = threading.Event(), threading.Event()
    events = {**dict.fromkeys(STOPPING, stop), SAVING: save}
    before = {number: signal.getsignal(number) for number in events}
    for number, event in events.items():
        signal.signal(number, lambda *_, event=event: event.set())
    try:
        yield stop, save
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
