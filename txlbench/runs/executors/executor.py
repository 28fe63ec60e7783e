"""What every launcher of runs offers, and what `ablate` was asked about it."""

import re
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from txlbench.errors import UserError
from txlbench.records.schema import RunState
from txlbench.runs.job import SAVING, Job

Launcher = Literal["process", "ray", "slurm"]


POLL_SECONDS = 0.1


class Executor(ABC):
    """Runs the jobs of an ablation, several at once, here or elsewhere.

    A launcher says how a run is started, how its end is seen, and how all of them are saved or
    stopped.

    Attributes:
        at_once: runs at a time, at most.
    """

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once

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
        before = signal.signal(SAVING, lambda *_: self.save())
        try:
            while open_ or self.running:
                while open_ and self.running < self.at_once:
                    if (job := next(waiting, None)) is None:
                        open_ = False
                        break
                    self.start(job)
                if not self.running:
                    break
                for job, state in self.collect():
                    if not ended(job, state):
                        open_ = False
                        self.withdraw()
                tick()
                time.sleep(POLL_SECONDS)
        finally:
            self.stop()
            signal.signal(SAVING, before)

    @property
    @abstractmethod
    def running(self) -> int:
        """How many jobs were started and are not collected."""

    @abstractmethod
    def start(self, job: Job) -> None:
        """Starts the run of `job`, or hands it to what will."""

    @abstractmethod
    def collect(self) -> list[tuple[Job, RunState]]:
        """Takes out the jobs that have ended since, with the states their runs are in."""

    def withdraw(self) -> None:  # noqa: B027  # where what is started begins at once
        """Takes back what was handed over but has not begun."""

    @abstractmethod
    def save(self) -> None:
        """Asks all runs for a checkpoint, after which they go on; called in a signal handler."""

    @abstractmethod
    def stop(self) -> None:
        """Stops all runs, which leave a checkpoint and the state interrupted."""


@dataclass(frozen=True)
class Launch:
    """Where runs go, and what each of them takes.

    Attributes:
        address: of the Ray cluster; None for a running one, else one of this machine.
        cpus: CPU cores of each run; None for its threads.
        gpus: GPUs of each run; None for what its device needs.
        memory: bytes of main memory of each run; None for no limit.
        others: what only one launcher knows, by name: resources of one's own with Ray; partition,
            time, account and other options of sbatch with Slurm.
    """

    launcher: Launcher = "process"
    address: str | None = None
    cpus: int | None = None
    gpus: int | None = None
    memory: int | None = None
    others: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, launcher: Launcher, address: str | None, resources: Sequence[str]) -> "Launch":
        """From what was typed; `resources` are KEY=VALUE.

        Raises:
            UserError: for what does not fit together or is no number.
        """
        given: dict[str, str] = {}
        for key, value in map(_pair, resources):
            if key in given:
                problem = f"--resource {key}={value}: {key} is {given[key]} already"
                raise UserError(problem, f"give {key} once")
            given[key] = value
        if address is not None and launcher != "ray":
            raise UserError(f"--address {address}: of a Ray cluster", "add --launcher ray")
        if given and launcher == "process":
            raise UserError(
                f"--resource {resources[0]}: processes of this machine take --threads and --device",
                "add --launcher ray or slurm, or leave it out",
            )
        cpus, gpus = _count(given, "cpus", 1), _count(given, "gpus", 0)
        memory = _bytes(given.pop("memory", None))
        return cls(launcher, address, cpus, gpus, memory, given)


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    if not key or not value:
        raise UserError(f"--resource {text}: not KEY=VALUE", "as cpus=4, gpus=1 or memory=16GiB")
    return key, value


def _count(given: dict[str, str], key: str, least: int) -> int | None:
    text = given.pop(key, None)
    if text is not None and not (text.isdecimal() and int(text) >= least):
        raise UserError(f"--resource {key}={text}: not a whole number from {least} on", "")
    return None if text is None else int(text)


SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)


def _bytes(text: str | None) -> int | None:
    """The number of bytes in 16GiB, 16G (the same) or 16GB (a multiple of 1000)."""
    if text is None:
        return None
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise UserError(f"--resource memory={text}: not a size", "as 16GiB or 800MB")
    decimal = text.strip().upper().endswith("B") and not found[3]
    power = " KMGT".index(found[2].upper() or " ")
    return round(float(found[1]) * (1000 if decimal else 1024) ** power)
