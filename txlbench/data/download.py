"""Files of the data directory: downloads, archives, checksums, and directories made as a whole.

Downloads try several addresses in turn. A file is written beside its place and moved there once it
is complete and its checksum is right, so what lies there can be trusted. Of an archive only chosen
members are read; nothing else of it is ever unpacked.
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
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING

import platformdirs

from txlbench.config.run_config import CorpusConfig
from txlbench.data.text import CHUNK
from txlbench.errors import UserError
from txlbench.files import read_json, write_json

if TYPE_CHECKING:
    from rich.progress import Progress


def data_root() -> Path:
    """Returns `$TXLBENCH_DATA`, else `txlbench` in the user's cache directory."""
    if chosen := os.environ.get("TXLBENCH_DATA"):
        return Path(chosen).expanduser().absolute()
    return platformdirs.user_cache_path("txlbench", appauthor=False)


def create_directory(directory: Path, fill: Callable[[Path, Path], None]) -> None:
    """Creates `directory` with all that `fill(new, scratch)` writes into `new`, or not at all.

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
system, so that its times cannot vouch for it."""


def file_checksum(path: Path, remember: bool = True) -> str:
    """Returns the SHA-256 of the file at `path`, which is read again only if it has changed.

    Args:
        remember: whether the data directory may be written to.

    Raises:
        UserError: if it is no file that can be read, or changes while it is read.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file", "give the path of a text file")
    try:
        return str(remembered(path, "sha256", _read, remember))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}", "give a file that can be read") from error


def remembered(
    path: Path, what: str, compute: Callable[[Path], str | int], remember: bool = True
) -> str | int:
    """Returns `compute(path)`, computed again only if the file at `path` has changed.

    Args:
        what: names the value among others of the same file.

    Raises:
        UserError: if the file changes meanwhile.
    """
    path = path.resolve()
    stamp = _stamp(path)
    memory = data_root() / "checksums" / f"{_digest(f'{path} {what}')[:16]}.json"
    with contextlib.suppress(UserError, OSError, KeyError, TypeError):
        known = read_json(memory)
        if known["stamp"] == stamp and isinstance(known[what], str | int):
            return known[what]
    value = compute(path)
    if _stamp(path) != stamp:
        raise UserError(f"{path}: changed while it was read", "run again when it is complete")
    if remember and time.time_ns() - max(stamp["mtime_ns"], stamp["ctime_ns"]) > SETTLED_NS:
        # Only a shortcut: a data directory that others share may be read-only.
        with contextlib.suppress(OSError):
            write_json(memory, {"path": str(path), "stamp": stamp, what: value})
    return value


def own_paths(config: CorpusConfig) -> list[Path]:
    """Returns the paths of a text of the user's: one, or one for each split."""
    given = (config.path, config.valid, config.test)
    return [Path(path).expanduser() for path in given if path is not None]


def text_files(path: Path) -> list[Path]:
    """Returns `path` itself or, for a directory, its *.txt files in sorted order."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.glob("*.txt") if not file.name.startswith("."))
    if not found:
        raise UserError(f"{path}: no *.txt in this directory", "give a text, or a folder of texts")
    return found


def check_not_empty(config: CorpusConfig) -> None:
    """Refuses (UserError) a text of the user's without a byte."""
    for path in own_paths(config):
        if not any(file.stat().st_size for file in text_files(path)):
            raise UserError(f"{path}: empty", "give a text")


def own_checksum(config: CorpusConfig, remember: bool = True) -> str:
    """Returns a checksum that changes with any file or with the column of the user's text.

    Args:
        remember: whether the data directory may be written to.
    """
    parts = [
        file_checksum(file, remember) for path in own_paths(config) for file in text_files(path)
    ]
    parts += [] if config.column is None else [f"column {config.column}"]
    return parts[0] if len(parts) == 1 else _digest("\n".join(parts))


def _stamp(path: Path) -> dict[str, int]:
    """Returns attributes of which any edit changes one, even one that keeps size and time."""
    status = path.stat()
    return {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
        "inode": status.st_ino,
    }


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode(errors="surrogateescape")).hexdigest()


class DownloadBar:
    """A progress bar on stderr with the face that pooch fills; off a terminal, a single line.

    Nothing is shown before the first bytes arrive.

    Attributes:
        total: bytes of the whole file, 0 if the server does not say; set by pooch.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.total = 0
        self._bar: Progress | None = None

    def update(self, size: int) -> None:
        """Counts `size` more bytes."""
        if self._bar is None:
            self._bar = self._start()
        self._bar.update(self._bar.task_ids[0], advance=size, total=self.total or None)

    def reset(self) -> None:
        """Counts from zero again, which pooch does before it fills the bar at the end."""
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=0)

    def close(self) -> None:
        """Draws the bar for the last time."""
        if self._bar is not None:
            self._bar.stop()

    def _start(self) -> "Progress":
        from rich import progress
        from rich.console import Console

        console = Console(stderr=True)
        if not console.is_terminal:
            print(self.title, file=sys.stderr)
        bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.DownloadColumn(),
            progress.TransferSpeedColumn(),
            progress.TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        bar.add_task(self.title, total=None)
        bar.start()
        return bar


LARGEST_GROWTH = 200
"""Texts shrink to a tenth; a member so much larger than its whole archive is a zip bomb."""
NO_BOMB = 1 << 20
"""Bytes that any member may have, whatever the size of its archive."""


def extract(archive: Path, targets: Mapping[str, Path]) -> None:
    """Extracts members of the archive at `archive` to files.

    Args:
        targets: where each member goes, by its exact name (a leading `./` aside).

    Raises:
        UserError: if it is neither a zip nor a tar archive, is damaged, or lacks a member.
    """
    missing = set(targets)
    with _faults_as_user_errors(archive):
        for member, size, content in _members(archive):
            name = member.removeprefix("./")
            if name in missing:
                _copy(content(), targets[name], size, archive)
                missing.remove(name)
            if not missing:
                return
    raise UserError(f"{archive}: lacks {sorted(missing)[0]}", "give the published archive")


def _members(archive: Path) -> Iterator[tuple[str, int, Callable[[], IO[bytes] | None]]]:
    """Yields name, size and a way to open each file of a zip or tar archive.

    A tar archive is read once: going back in a compressed one means reading it again.
    """
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            yield from ((m.filename, m.file_size, partial(file.open, m)) for m in file.infolist())
        return
    with tarfile.open(archive, "r|*") as tar:
        yield from ((m.name, m.size, partial(tar.extractfile, m)) for m in tar if m.isreg())


def _copy(content: IO[bytes] | None, target: Path, size: int, archive: Path) -> None:
    assert content is not None, target
    if size > max(NO_BOMB, LARGEST_GROWTH * archive.stat().st_size):
        raise UserError(
            f"{archive}: {target.name} would unpack to {size:,} bytes", "give the published archive"
        )
    with content, target.open("wb") as file:
        shutil.copyfileobj(content, file, CHUNK)
    found = target.stat().st_size
    if found != size:
        raise UserError(f"{archive}: {target.name} has {found} bytes, not {size}", "get it again")


@contextmanager
def _faults_as_user_errors(archive: Path) -> Iterator[None]:
    # A gzip header that is cut off ends in tarfile's TypeError.
    damage = (EOFError, OSError, TypeError, zlib.error, tarfile.TarError, zipfile.BadZipFile)
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
"""Some servers refuse the default user agent of the HTTP library."""


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
    """Returns where `file` lies once it is fetched."""
    return data_root() / "downloads" / file.name


def fetch(file: PublishedFile, instead: str) -> Path:
    """Returns the path of `file`, which is fetched unless it is there already.

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
        progress = DownloadBar(f"fetching {address}")
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
    """Says why an address failed, in a few words; a fault of our own disk is raised again."""
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
