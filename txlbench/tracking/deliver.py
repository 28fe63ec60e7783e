"""Delivers experiments and findings to MLflow, once or beside a running experiment.

`python -m txlbench.tracking.deliver PATH... [--follow]` does so as a process, with directories of
experiments or JSON files of findings.
"""

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from txlbench.config.plugins import load_files
from txlbench.errors import ExitStatus
from txlbench.tracking.backlog import is_finding, what_is_left
from txlbench.tracking.client import reason_of, silence
from txlbench.tracking.mirror import ExperimentMirror, FindingMirror
from txlbench.tracking.store import store_of


def deliver(path: Path, rebuild: bool = False) -> str | None:
    """Delivers what is new of an experiment or a finding; prints what the user should know.

    Args:
        path: the directory of the experiment, or the JSON file of the finding.
        rebuild: delete its runs from the store first and deliver everything anew.

    Returns:
        Why it failed, in one line; None if it did not.
    """
    silence()
    kind = FindingMirror if is_finding(path) else ExperimentMirror
    try:
        with store_of(path.parent if is_finding(path) else path).locked():
            mirror = kind(path)
            if rebuild:
                mirror.forget()
            mirror.deliver()
            for move in mirror.mlflow.moves:
                print(move)
    except Exception as error:  # whatever a store does must not stop whoever runs beside us
        return reason_of(error)
    return None


POLL_SECONDS = 4.0
"""Shortest time between two deliveries."""
LARGEST_SHARE = 0.01
"""Largest share of one core that deliveries take: after a dear one the next waits longer."""
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of the process beside a verb."""
    parser = argparse.ArgumentParser(prog="txlbench.tracking.deliver", description=__doc__)
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--follow", action="store_true", help="until standard input is closed")
    parser.add_argument("--plugin", type=Path, action="append", default=[], help="to be loaded")
    given = parser.parse_args(arguments)
    load_files(given.plugin)
    left: dict[Path, str] = {}

    def attempt() -> bool:
        nonlocal left
        found = {path: deliver(path) for path in given.paths}
        left = {path: reason for path, reason in found.items() if reason is not None}
        return not left

    if given.follow:
        follow(attempt)
    else:
        attempt()
    for path, reason in left.items():
        print(what_is_left(path, reason))
    return ExitStatus.RUN_FAILED if left else ExitStatus.DONE


if __name__ == "__main__":
    sys.exit(main())
