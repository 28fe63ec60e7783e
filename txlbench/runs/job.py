"""The job of a training process as one line of JSON, and what signals mean to `ablate`.

SIGINT and SIGTERM stop with everything kept, a second one leaves at once; SIGUSR1 saves.
"""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from txlbench.config.plugins import PluginFile
from txlbench.config.run_config import EvaluateConfig
from txlbench.errors import ExitStatus


@dataclass(frozen=True)
class Job:
    """Train the run in `directory` where it is not trained yet, and measure it.

    Attributes:
        directory: the run's directory, which holds its configuration.
        device: cpu, cuda or cuda:N, never auto; for several processes one each, with commas.
        evaluations: every way in which a label asks the run to be measured.
        processes: how many train and measure it together.
        plugins: what the command line loaded, by source: no path has to lead to it elsewhere.
        attempts: how often the run had been started when it was planned. If it was started since,
            another process has done something about it, and the job is void. None for whatever.
    """

    directory: Path
    device: str
    evaluations: tuple[EvaluateConfig, ...]
    attempts: int | None = None
    processes: int = 1
    plugins: tuple[PluginFile, ...] = ()

    def device_of(self, rank: int) -> str:
        """The device of one of the processes."""
        devices = self.device.split(",")
        if devices == ["cuda"] and self.processes > 1:
            return f"cuda:{rank}"
        return devices[rank % len(devices)]

    def to_json(self) -> str:
        """One line."""
        evaluations = [each.model_dump(mode="json") for each in self.evaluations]
        plugins = [vars(each) for each in self.plugins]
        plain = {"directory": str(self.directory), "evaluations": evaluations, "plugins": plugins}
        return json.dumps({**vars(self), **plain})

    @classmethod
    def from_json(cls, line: str) -> "Job":
        content = json.loads(line)
        evaluations = tuple(map(EvaluateConfig.model_validate, content["evaluations"]))
        directory = Path(content["directory"])
        plugins = tuple(PluginFile(**each) for each in content["plugins"])
        typed = {"directory": directory, "evaluations": evaluations, "plugins": plugins}
        return cls(**{**content, **typed})


STOPPING = (signal.SIGINT, signal.SIGTERM)
SAVING = signal.SIGUSR1
"""What schedulers send a while before the end of a job."""


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Inside, SIGTERM interrupts as Ctrl-C does, and a second one of either leaves at once.

    Runs then end by themselves: their lifeline closes with this process, and they write their
    checkpoints. SIGUSR1 means nothing unless runs are there to be saved.
    """
    before = {number: signal.getsignal(number) for number in (*STOPPING, SAVING)}
    for number in STOPPING:
        signal.signal(number, _interrupt)
    signal.signal(SAVING, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Inside, SIGUSR1 waits, in processes that are started too, until they can take it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {SAVING})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    for each in STOPPING:
        signal.signal(each, _leave)
    _say("stopping; runs write their checkpoints (once more leaves at once)")
    raise KeyboardInterrupt


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
    _say("interrupted")
    os._exit(ExitStatus.INTERRUPTED)


def _say(text: str) -> None:
    """Straight to the terminal, as the interrupted code may be in the middle of a print."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode())
