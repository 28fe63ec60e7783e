"""What signals mean to `ablate`: stop with everything kept, leave at once, or save and go on."""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

from txlbench.errors import ExitStatus

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
