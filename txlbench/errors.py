"""Errors that the user can mend, and the exit statuses of the command line."""

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
