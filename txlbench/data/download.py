"""Fetching published files: several addresses in turn, whole and verified or not at all.

Files lie in `downloads` under the data directory. A file is written beside its place and moved
there once it is complete and its checksum is right, so what lies there can be trusted.

Where prepared corpora lie, and how a directory comes into being whole or not at all.

SHA-256 of source files, remembered for as long as size and modification time stay.

How far a download is: one line, drawn over and over on a terminal and written once elsewhere.

Reading chosen members out of zip and tar archives; nothing else of them is ever unpacked.
"""

import contextlib
import errno
import hashlib
import logging
import os
import shutil
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from txlbench.data.text import CHUNK
from txlbench.errors import UserError
from txlbench.files import read_json, write_json


def data_root() -> Path:
    """`$TXLBENCH_DATA`, else `txlbench` in the user's cache directory."""
    if chosen := os.environ.get("TXLBENCH_DATA"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "txlbench"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "txlbench"


def create_directory(directory: Path, fill: Callable[[Path, Path], None]) -> None:
    """Makes `directory` appear with all that `fill(new, scratch)` writes into `new`.

    `scratch` is for files that are not kept. Several processes may do this at once: each works
    on its own copy, and the first to finish wins.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{directory.name}."
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=prefix) as temporary:
        new, scratch = Path(temporary, "new"), Path(temporary, "scratch")
        new.mkdir()
        scratch.mkdir()
        fill(new, scratch)
        try:
            new.rename(directory)
        except OSError:
            if not directory.is_dir():
                raise


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


INTERVAL = 0.2
"""Seconds between two drawings."""

MEGABYTE = 1_000_000


class ProgressLine:
    """The progress bar that pooch fills; nothing is shown before the first bytes arrive.

    Attributes:
        total: bytes of the whole file, 0 if the server does not say; set by pooch.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.total = 0
        self._done = 0
        self._drawn: float | None = None

    def update(self, size: int) -> None:
        """Counts `size` more bytes."""
        self._done += size
        now = time.monotonic()
        if self._drawn is None or (sys.stderr.isatty() and now - self._drawn > INTERVAL):
            self._draw()
            self._drawn = now

    def reset(self) -> None:
        """Counts from zero again, which pooch does before it fills the bar at the end."""
        self._done = 0

    def close(self) -> None:
        """Ends the line, if there is one."""
        if self._drawn is not None and sys.stderr.isatty():
            self._draw()
            sys.stderr.write("\n")
        self._drawn = None

    def _draw(self) -> None:
        if sys.stderr.isatty():
            share = f" of {self.total / MEGABYTE:,.1f}" if self.total else ""
            sys.stderr.write(f"\r{self.title}: {self._done / MEGABYTE:,.1f}{share} MB")
            sys.stderr.flush()
        else:
            print(self.title, file=sys.stderr)


LARGEST_GROWTH = 200
"""Texts are packed to a tenth; a member that is so much larger than its whole archive is a bomb."""
NO_BOMB = 1 << 20
"""Bytes that any member may have."""


def extract(archive: Path, targets: Mapping[str, Path]) -> None:
    """Writes members of the archive at `archive` to files.

    Args:
        targets: where each member goes, by its exact name (a leading `./` aside).

    Raises:
        UserError: if it is neither a zip nor a tar archive, is damaged, or lacks a member.
    """
    with _faults_as_user_errors(archive):
        if zipfile.is_zipfile(archive):
            missing = _extract_zip(archive, targets)
        else:
            missing = _extract_tar(archive, targets)
    if missing:
        raise UserError(f"{archive}: lacks {sorted(missing)[0]}", "give the published archive")


def _extract_zip(archive: Path, targets: Mapping[str, Path]) -> set[str]:
    with zipfile.ZipFile(archive) as file:
        members = {member.filename.removeprefix("./"): member for member in file.infolist()}
        for name in targets.keys() & members.keys():
            with file.open(members[name]) as content:
                _copy(content, targets[name], members[name].file_size, archive)
    return set(targets) - members.keys()


def _extract_tar(archive: Path, targets: Mapping[str, Path]) -> set[str]:
    """In one pass, since going back in a compressed archive means reading it again."""
    missing = set(targets)
    with tarfile.open(archive, "r|*") as file:
        for member in file:
            name = member.name.removeprefix("./")
            content = file.extractfile(member) if name in missing and member.isreg() else None
            if content is not None:
                _copy(content, targets[name], member.size, archive)
                missing.remove(name)
            if not missing:
                break
    return missing


def _copy(content: IO[bytes], target: Path, size: int, archive: Path) -> None:
    if size > max(NO_BOMB, LARGEST_GROWTH * archive.stat().st_size):
        raise UserError(
            f"{archive}: {target.name} would unpack to {size:,} bytes", "give the published archive"
        )
    with target.open("wb") as file:
        shutil.copyfileobj(content, file, CHUNK)
    found = target.stat().st_size
    if found != size:
        raise UserError(f"{archive}: {target.name} has {found} bytes, not {size}", "get it again")


@contextmanager
def _faults_as_user_errors(archive: Path) -> Iterator[None]:
    damage = (EOFError, OSError, zlib.error, tarfile.TarError, zipfile.BadZipFile)
    try:
        yield
    except damage as error:
        # A place before the file's beginning is the format's fault; else it is the file system's.
        if getattr(error, "errno", None) not in (None, errno.EINVAL):
            raise
        raise UserError(f"{archive}: no archive, or a damaged one", "get it again") from error


DOWNLOAD_CHUNK = 1 << 20
"""Bytes received at once."""

AGENT = {"User-Agent": "txlbench"}
"""Some servers refuse the name that the HTTP library has of its own."""


@dataclass(frozen=True)
class PublishedFile:
    """A file that lies at one or more addresses.

    Attributes:
        name: its own name, also in `downloads`.
        addresses: where it lies, tried in order.
        sha256: its published checksum, None where none is known for certain.
    """

    name: str
    addresses: tuple[str, ...]
    sha256: str | None


def downloaded(file: PublishedFile) -> Path:
    """Where `file` lies once it is fetched."""
    return data_root() / "downloads" / file.name


def fetch(file: PublishedFile, instead: str) -> Path:
    """The path of `file`, fetched unless it is there already.

    Args:
        instead: how the user can give what cannot be fetched, for the message.

    Raises:
        UserError: if no address has the file, with the reason of each.
    """
    from pooch import HTTPDownloader, get_logger, retrieve

    get_logger().setLevel(logging.WARNING)
    place = downloaded(file)
    known = file.sha256 and f"sha256:{file.sha256}"
    reasons = []
    for address in file.addresses:
        progress = ProgressLine(f"fetching {address}")
        downloader = HTTPDownloader(progressbar=progress, chunk_size=DOWNLOAD_CHUNK, headers=AGENT)
        try:
            retrieve(address, known, place.name, place.parent, downloader=downloader)
            return place
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {_reason(error)}")
        finally:
            progress.close()
    checksum = f"SHA-256 {file.sha256}" if file.sha256 else "no SHA-256 known"
    raise UserError(f"cannot fetch {file.name} ({checksum}): {', '.join(reasons)}", instead)


def _reason(error: OSError | ValueError) -> str:
    """Why an address failed, in a few words; what is wrong with our own disk is raised again."""
    from requests import exceptions

    match error:
        case exceptions.HTTPError(response=response) if response is not None:
            return f"{response.status_code} {response.reason}"
        case exceptions.TooManyRedirects():
            return "redirected without end"
        case exceptions.Timeout():
            return "no answer in time"
        case exceptions.ChunkedEncodingError():
            return "cut off"
        case exceptions.ConnectionError():
            return "no connection"
        case exceptions.RequestException():
            return type(error).__name__
        case OSError():
            raise error
    return "another file (wrong checksum)"
