"""Losses that are appended to a file as they are computed, so that interrupted work continues."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from txlbench.errors import UserError

TYPE = np.dtype("<f4")


class PartialLosses:
    """The first losses of a known order, in a file that one process at a time may extend.

    Raises:
        UserError: on entry, if another process is extending it, or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b", buffering=0)
        except OSError as error:
            raise UserError(f"{self.path}: {error.strerror}", "make room to write there") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise UserError(
                f"{self.path}: another process is computing these losses", "wait for it"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        """Losses that are there."""
        return os.fstat(self._file.fileno()).st_size // TYPE.itemsize

    def truncate(self, losses: int) -> None:
        """Keeps the first `losses` only."""
        self._file.truncate(losses * TYPE.itemsize)

    def append(self, losses: NDArray[Any]) -> None:
        """Adds losses, on the disk before this returns."""
        self._file.write(losses.astype(TYPE).tobytes())
        os.fsync(self._file.fileno())

    def read(self) -> NDArray[np.float32]:
        """All of them."""
        return np.fromfile(self.path, dtype=TYPE)
