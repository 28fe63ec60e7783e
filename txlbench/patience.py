"""Disks that are full, read-only or slow for a while: tried again with growing waits."""

import errno
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WAITS = (0.1, 0.5, 2.0)
"""Seconds before each further try."""
PASSING = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
        *(errno.EIO, errno.EAGAIN, errno.EBUSY, errno.ENOBUFS, errno.ENOMEM, errno.ENOLCK),
        *(errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.ENFILE, errno.EMFILE),
    }
)
"""Refusals that can pass without anybody changing the program or its arguments."""


def may_pass(error: BaseException) -> bool:
    """Whether `error` is a fault of disk or network that may be gone a little later."""
    return isinstance(error, OSError) and error.errno in PASSING


def patiently(write: Callable[[], T]) -> T:
    """The result of `write`, tried again after each of WAITS while a disk refuses it."""
    for wait in WAITS:
        try:
            return write()
        except OSError as error:
            if not may_pass(error):
                raise
        time.sleep(wait)
    return write()
