"""Atomic writes, JSON and JSON lines, and retries where a disk or network refuses for a while.

A file that is replaced is whole or absent at any moment. A log of JSON lines is never torn: lines
stay in memory while a disk refuses them.
"""

import contextlib
import errno
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from txlbench.errors import UserError

T = TypeVar("T")

RETRY_WAITS = (0.1, 0.5, 2.0)
"""Seconds before each retry."""
TRANSIENT = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
        *(errno.EIO, errno.EAGAIN, errno.EBUSY, errno.ENOBUFS, errno.ENOMEM, errno.ENOLCK),
        *(errno.ESTALE, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH),
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.ENFILE, errno.EMFILE),
    }
)
"""Error numbers that may go away without a change of the program or its arguments."""


def is_transient(error: BaseException) -> bool:
    """Whether `error` is a fault of disk or network that may be gone a little later."""
    return isinstance(error, OSError) and error.errno in TRANSIENT


def retry_io(operation: Callable[[], T]) -> T:
    """Returns the result of `operation`, retried after each of RETRY_WAITS on transient faults."""
    for wait in RETRY_WAITS:
        try:
            return operation()
        except OSError as error:
            if not is_transient(error):
                raise
        time.sleep(wait)
    return operation()


def write_atomically(
    path: Path,
    write: Callable[[BinaryIO], object],
    approve: Callable[[Path], object] = lambda _: None,
) -> None:
    """Writes a file beside `path`, flushes it to disk and renames it over `path`.

    A reader sees the old content or the new one, never a part; a failure leaves the old one.

    Args:
        write: is called with the open file.
        approve: is called with the path of the flushed file before it is renamed; an exception
            that it raises counts as a failure.

    Raises:
        OSError: naming `path`, if the system refuses, or a device or pipe is there.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):  # renaming would replace a device
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with _removed_on_failure(Path(name)) as aside:
            with os.fdopen(handle, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            aside.chmod(0o644)
            approve(aside)
            aside.replace(path)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    _flush_directory(path.parent)


@contextlib.contextmanager
def _removed_on_failure(path: Path) -> Iterator[Path]:
    try:
        yield path
    except BaseException:
        with contextlib.suppress(OSError):  # read-only by now: the first error says so
            path.unlink(missing_ok=True)
        raise


def _flush_directory(path: Path) -> None:
    """Makes a rename survive a power cut, where the system supports it."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8 with LF line ends, atomically, with retries on a full disk."""
    retry_io(
        lambda: write_atomically(
            path, lambda file: file.write(text.encode(errors="backslashreplace"))
        )
    )


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as indented JSON, atomically; NaN and infinity are refused (ValueError)."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Returns the JSON value in `path`; UserError naming the file if it is not JSON."""
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{path}: not a JSON file ({error})", "delete it or restore it from a copy"
        ) from error


def json_line(value: Any) -> bytes:
    """Encodes one line of JSON; NaN and infinity are refused (ValueError)."""
    return json.dumps(value, allow_nan=False).encode() + b"\n"


def append_whole(path: Path, content: bytes) -> None:
    """Appends all of `content` or, on an OSError, nothing: a partial write is cut off again."""
    with path.open("ab", buffering=0) as file:
        begin = os.fstat(file.fileno()).st_size
        try:
            left = memoryview(content)
            while left:  # a disk that fills up accepts a part and refuses only the next write
                left = left[file.write(left) :]
        except OSError as error:
            with contextlib.suppress(OSError):
                file.truncate(begin)
            raise OSError(error.errno, error.strerror, str(path)) from error


def read_json_lines(path: Path, offset: int = 0) -> Iterator[tuple[Any, int]]:
    """Yields (value, byte offset after it) for every whole line from `offset` on.

    A last line without its newline is still being written and is left for the next call. A
    missing file has no lines.
    """
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(
                    f"{path}: byte {offset - len(line)}: not a line of JSON", "restore the file"
                ) from error
            yield value, offset


def last_json_line(path: Path) -> Any:
    """Returns the last whole line of JSON in `path`, read from the end; None if there is none."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 65536))
        whole = file.read().rpartition(b"\n")[0]
    last = whole.rpartition(b"\n")[2]
    try:
        return json.loads(last) if last else None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: the last line is not JSON", "restore the file") from error


class LineLog:
    """An append-only file of JSON lines with one writer, buffered while the disk refuses writes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._buffer = b""

    def append(self, values: Mapping[str, object]) -> None:
        """Writes one line now, or with a later one if the disk refuses."""
        self._buffer += json_line(dict(values))
        with contextlib.suppress(OSError):
            self.flush()

    def flush(self) -> None:
        """Writes the buffered lines; OSError if the disk still refuses."""
        if self._buffer:
            append_whole(self._path, self._buffer)
        self._buffer = b""

    def sync(self) -> int:
        """Writes the buffered lines through to the disk; returns the file's size in bytes."""
        self.flush()
        if not self._path.exists():
            return 0
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    @property
    def size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def truncate(self, size: int) -> None:
        """Cuts the file to its first `size` bytes; a shorter file stays as it is."""
        if self.size > size:
            os.truncate(self._path, size)
