"""Corpora whose files are published: fetched or given, and held against the published counts."""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from txlbench.config.catalogue import CORPORA
from txlbench.config.section import Split
from txlbench.data.archives import extract
from txlbench.data.checksums import file_checksum
from txlbench.data.fetching import PublishedFile, fetch
from txlbench.data.source import Source
from txlbench.data.splits import SPLITS
from txlbench.data.text import Text
from txlbench.data.unigram import Counts
from txlbench.data.vocabulary import Vocabulary
from txlbench.errors import UserError

UNVERIFIED = (
    "the files given are not verified by a checksum; their counts of tokens and symbols are those "
    "that are published"
)


class Published(Source):
    """A corpus of the catalogue that lies in an archive with a file for each split.

    Attributes:
        archive: what is fetched.
        members: the exact names of the files in it, by split or another key.
    """

    archive: ClassVar[PublishedFile]
    members: ClassVar[Mapping[str, str]]

    def __init__(self, from_file: Path | None = None) -> None:
        self.from_file = from_file

    @property
    def instead(self) -> str:
        """How a user can give what cannot be fetched."""
        return f"get it another way: txlbench data prepare {self.name} --from-file PATH"

    def checksum(self) -> str:
        assert self.archive.sha256 is not None, self.name
        return self.archive.sha256

    def texts(self, scratch: Path) -> Mapping[Split, Text]:
        files = self.files(scratch)
        return {split: Text(files[split]) for split in SPLITS}

    def files(self, scratch: Path) -> dict[str, Path]:
        """The files of `members`, in a folder that the user gave or unpacked to `scratch`.

        Raises:
            UserError: if one is missing, or the archive is not the published one.
        """
        if self.from_file is not None and self.from_file.is_dir():
            folder = self.from_file
            return {key: find(folder, key, member) for key, member in self.members.items()}
        archive = fetch(self.archive, self.instead) if self.from_file is None else self._given()
        files = {key: scratch / PurePosixPath(member).name for key, member in self.members.items()}
        extract(archive, {member: files[key] for key, member in self.members.items()})
        return files

    def _given(self) -> Path:
        """The archive that the user gave, if it is the published one."""
        assert self.from_file is not None
        verify(self.from_file, self.archive.sha256)
        return self.from_file

    def review(self, vocabulary: Vocabulary, counts: Counts) -> list[str]:
        """Refuses a text whose counts are not the published ones, where these are known."""
        facts = CORPORA[self.name]
        found: dict[str, int] = {split: int(count.sum()) for split, count in counts.items()}
        compare(self.name, "symbols", len(vocabulary), facts.vocabulary_size)
        for split, published in facts.tokens.items():
            compare(self.name, f"tokens in {split}", found[split], published)
        return [UNVERIFIED] if self.from_file is not None and not self.verified else []

    @property
    def verified(self) -> bool:
        """Whether a checksum vouches for the files."""
        given_folder = self.from_file is not None and self.from_file.is_dir()
        return self.archive.sha256 is not None and not given_folder


def verify(path: Path, sha256: str | None) -> None:
    """UserError if the file at `path` is not the one with this checksum."""
    found = file_checksum(path)
    if sha256 not in (None, found):
        remedy = "give the published file, or unpack yours and give the folder"
        raise UserError(f"{path}: SHA-256 is {found}, not {sha256}", remedy)


def compare(name: str, what: str, found: int, published: int | None) -> None:
    """UserError if a count is not the published one; None for one that is not known."""
    if published not in (None, found):
        raise UserError(
            f"{name}: {found:,} {what}, {published:,} are published",
            "give the published files, or prepare yours by their path, under another name",
        )


def find(folder: Path, key: str, member: str) -> Path:
    """The file in `folder` that is `member` of the archive, or is named for its key.

    The folder may be any of those that the archive unpacks to.
    """
    parts = PurePosixPath(member).parts
    names: list[Any] = [PurePosixPath(*parts[start:]) for start in range(len(parts))]
    for name in (*names, f"{key}.txt"):
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"{folder}: neither {parts[-1]} nor {key}.txt in it", "give another folder")
