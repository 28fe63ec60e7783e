"""Reading chosen members out of zip and tar archives; nothing else of them is ever unpacked."""

import errno
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from txlbench.data.text import CHUNK
from txlbench.errors import UserError

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
