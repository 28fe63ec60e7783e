"""Delivery beside a running experiment: again and again, until whoever started it is done."""

import os
import select
import signal
import sys
import time
from collections.abc import Callable

POLL_SECONDS = 4.0
"""At least, between two deliveries."""
LARGEST_SHARE = 0.01
"""Of one core's time that deliveries may take: after a dear one the next waits longer."""
LAST_WAITS = (0.0, 2.0, 5.0)
"""Seconds before each try of the last delivery."""
LAST_SECONDS = 30.0
"""After which no further try of the last delivery begins: a server may accept and never answer."""
NICENESS = 5
"""Training comes first on a machine with few cores."""


def follow(attempt: Callable[[], bool]) -> bool:
    """Calls `attempt` until standard input is closed, and then until it succeeds or was refused
    often enough; returns whether the last one succeeded.

    An interrupt from the keyboard reaches the whole process group. It is left to the parent,
    which closes our input when its own work is put away.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    pause = POLL_SECONDS
    while not _input_closes_within(pause):
        begun = time.process_time()
        attempt()
        pause = max(POLL_SECONDS, (time.process_time() - begun) / LARGEST_SHARE)
    deadline = time.monotonic() + LAST_SECONDS
    for wait in LAST_WAITS:
        time.sleep(wait)
        if attempt():
            return True
        if time.monotonic() > deadline:
            break
    return False


def _input_closes_within(seconds: float) -> bool:
    """Waits until standard input ends, at most `seconds`; what it carries is ignored."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([sys.stdin], [], [], left)
        if ready and not os.read(sys.stdin.fileno(), 4096):
            return True
    return False
