"""Errors that the user can mend, with remedies, and the exit statuses of the command line."""

import difflib
from collections.abc import Iterable
from enum import IntEnum


class ExitStatus(IntEnum):
    """What the process tells its caller."""

    DONE = 0
    RUN_FAILED = 1
    USAGE = 2
    INTERRUPTED = 130


class UserError(Exception):
    """Something wrong with what the user gave: one line with path, key, value found and remedy.

    The command line prints it without a traceback and exits with `ExitStatus.USAGE`. Programming
    errors are `assert`s instead.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem = problem
        self.remedy = remedy
        message = f"{problem}; {remedy}" if remedy else problem
        super().__init__(" ".join(message.splitlines()))


class MissingPlugin(UserError, ValueError):
    """A configuration names what is not known here, and what a plug-in that was not given may have.

    A ValueError too, so that validators raise it.
    """


def suggestion(name: str, known: Iterable[str]) -> str:
    """The remedy for an unknown `name`: the nearest known spelling and the list of all."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    start = f"did you mean '{near[0]}'? " if near else ""
    return f"{start}known: {', '.join(known)}"
