"""SHA-256 of source files, remembered for as long as size and modification time stay."""

import contextlib
import hashlib
import time
from pathlib import Path
from typing import Any

from txlbench.data.storage import data_root
from txlbench.errors import UserError
from txlbench.files import read_json, write_json

SETTLED_NS = 2_000_000_000
"""A file changed less than this ago may change again within one tick of the clock of its file
system, so that its modification time cannot vouch for it."""


def file_checksum(path: Path) -> str:
    """The SHA-256 of the file at `path`, read again only if its size or time changed.

    Raises:
        UserError: if it is not a file, or changes while it is read.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file", "give the path of a text file")
    path = path.resolve()
    stamp = _stamp(path)
    memory = data_root() / "checksums" / f"{_digest(str(path).encode())[:16]}.json"
    with contextlib.suppress(UserError, OSError, KeyError, TypeError):
        known = read_json(memory)
        if known["stamp"] == stamp:
            return str(known["sha256"])
    checksum = _read(path)
    if _stamp(path) != stamp:
        raise UserError(f"{path}: changed while it was read", "run again when it is complete")
    if time.time_ns() - path.stat().st_mtime_ns > SETTLED_NS:
        # Only a shortcut: a data directory that others share may be read-only.
        with contextlib.suppress(OSError):
            write_json(memory, {"stamp": stamp, "sha256": checksum})
    return checksum


def combined_checksum(paths: list[Path]) -> str:
    """The checksum of one file, or one that changes with any of several files."""
    checksums = [file_checksum(path) for path in paths]
    return checksums[0] if len(checksums) == 1 else _digest("\n".join(checksums).encode())


def _stamp(path: Path) -> dict[str, Any]:
    status = path.stat()
    return {"path": str(path), "size": status.st_size, "mtime_ns": status.st_mtime_ns}


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
