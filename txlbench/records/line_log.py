"""A file of JSON lines that is never torn: lines wait in memory while a disk refuses them."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from txlbench.files import append_whole, json_line


class LineLog:
    """Appends to one file, from one process.

    Attributes:
        fault: why the lines that wait could not be written; None if none waits.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._waiting = b""
        self.fault: OSError | None = None

    def append(self, values: Mapping[str, Any]) -> None:
        """Writes one line now, or with a later one if the disk refuses."""
        self._waiting += json_line(dict(values))
        with contextlib.suppress(OSError):
            self.write_waiting()

    def write_waiting(self) -> None:
        """Writes what waits; OSError if the disk refuses still."""
        if not self._waiting:
            return
        try:
            append_whole(self._path, self._waiting)
        except OSError as error:
            self.fault = error
            raise
        self._waiting, self.fault = b"", None

    def flush(self) -> int:
        """Writes what waits through to the disk; returns the file's size."""
        self.write_waiting()
        if not self._path.exists():
            return 0
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    @property
    def size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def cut(self, size: int) -> None:
        """Takes back all after the first `size` bytes; a shorter file stays as it is."""
        if self.size > size:
            os.truncate(self._path, size)
