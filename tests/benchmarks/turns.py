"""Processes that take turns at the same work, so that a machine that changes its speed changes all.

A side is a program that reads one workload a line, as JSON, and answers each with a line
{"seconds": .., "cpu": .., "value": ..}: how long it took, how long it computed, and a number that
all sides should agree on.
"""

import json
import os
import statistics
import subprocess
from dataclasses import dataclass, field

from txlbench.machine import HUGE_PAGES, allocator_settings, worker_environment


def environments(threads: int, evaluates: bool = False) -> tuple[dict[str, str], dict[str, str]]:
    """What the suite gives its own processes, and the same without its settings of memory.

    Args:
        evaluates: as a process has it that evaluates and generates, not one that trains.
    """
    settings = {**allocator_settings(), **(HUGE_PAGES if evaluates else {})}
    bare = {name: value for name, value in os.environ.items() if name not in settings}
    ours = {**worker_environment(threads, bare), **settings}
    return ours, {name: value for name, value in ours.items() if name not in settings}


@dataclass
class Side:
    """One process, started with its models loaded."""

    name: str
    command: list[str]
    environment: dict[str, str]
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.process = subprocess.Popen(
            self.command,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, workload: dict) -> dict:
        self.process.stdin.write(json.dumps(workload) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.name}: ended with status {self.process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


@dataclass(frozen=True)
class Turn:
    """What the sides needed for one workload, round by round, in order of the rounds."""

    seconds: dict[str, list[float]]
    values: dict[str, float]

    def ratio(self, side: str, baseline: str) -> float:
        """How many times faster `side` is: the median over rounds."""
        return statistics.median(self._ratios(side, baseline))

    def spread(self, side: str, baseline: str) -> tuple[float, float]:
        """The quartiles over rounds of how many times faster `side` is."""
        low, _, high = statistics.quantiles(self._ratios(side, baseline), n=4)
        return low, high

    def _ratios(self, side: str, baseline: str) -> list[float]:
        """Round by round, as the two sides of a round ran one after the other."""
        pairs = zip(self.seconds[baseline], self.seconds[side], strict=True)
        return [slow / fast for slow, fast in pairs]


def take_turns(sides: list[tuple[Side, dict]], rounds: int, clock: str = "seconds") -> Turn:
    """Each side does its workload once as a warm-up, then `rounds` times, by turns.

    Args:
        clock: seconds, or cpu: what the process computed, which on a busy machine is steadier.
    """
    seconds = {side.name: [] for side, _ in sides}
    values = {side.name: side.ask(workload)["value"] for side, workload in sides}
    for _ in range(rounds):
        for side, workload in sides:
            seconds[side.name].append(side.ask(workload)[clock])
    return Turn(seconds, values)
