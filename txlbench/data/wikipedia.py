"""`enwiki-sample`: 6 MB of real Wikipedia XML, the kind of text of enwik8, without a download.

The text is a test file of the gensim package. It is found without importing the package, and
split 90/5/5 by bytes.

The first 10^8 bytes of Wikipedia, split by bytes: what `enwik8` and `text8` share.

`enwik8`: Wikipedia XML as bytes, and `enwik8-official`, what the released code made of it.

The released code reads lines and drops their ends (`add_eos` is off), so that its model never
sees a newline and has 204 symbols (Dai et al. 2019, code). Streams that keep newlines score about
0.02 bits a character lower; numbers on the two are not comparable.

`text8`: Wikipedia in the letters a to z and the space.
"""

import bz2
import hashlib
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, ClassVar

from txlbench.config.base import Split
from txlbench.config.catalogue import CORPORA
from txlbench.data.download import PublishedFile
from txlbench.data.published import Published, verify
from txlbench.data.source import Source
from txlbench.data.text import CHUNK, SPLITS, Text, cut
from txlbench.data.vocabulary import ByteVocabulary, Vocabulary
from txlbench.errors import UserError

ADDRESSES = ("http://mattmahoney.net/dc", "https://data.deepai.org")


def mahoney(name: str, sha256: str) -> PublishedFile:
    """An archive of Matt Mahoney's, where it lies and mirrored."""
    return PublishedFile(name, tuple(f"{address}/{name}" for address in ADDRESSES), sha256)


class HundredMillion(Published):
    """One text of `sum(sizes)` bytes, whose splits are consecutive.

    Attributes:
        sizes: bytes of train, valid and test.
        text_sha256: of the text, so that a copy of it is as good as the archive.
    """

    sizes: ClassVar[tuple[int, int, int]] = (90_000_000, 5_000_000, 5_000_000)
    text_sha256: ClassVar[str]

    def texts(self, scratch: Path) -> Mapping[Split, Text]:
        path = self._text(scratch)
        size = path.stat().st_size
        if size != sum(self.sizes):
            raise UserError(f"{path}: {size:,} bytes, not {sum(self.sizes):,}", "get it again")
        stops = list(accumulate(self.sizes))
        starts = [0, *stops]
        return {
            split: self.part(path, start, stop)
            for split, start, stop in zip(SPLITS, starts, stops, strict=False)
        }

    def part(self, path: Path, start: int, stop: int) -> Text:
        """The split made of bytes [start, stop)."""
        return Text(path, start, stop)

    def _text(self, scratch: Path) -> Path:
        given = self.from_file
        if given is not None and given.is_file() and not zipfile.is_zipfile(given):
            verify(given, self.text_sha256)
            return given
        (path,) = self.files(scratch).values()
        return path


class Enwik8(HundredMillion):
    """All bytes; the vocabulary is the 256 values."""

    name = "enwik8"
    level = CORPORA[name].level
    split_rule = CORPORA[name].split_rule
    archive = mahoney(
        "enwik8.zip", "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc"
    )
    members: ClassVar[Mapping[str, str]] = {"enwik8": "enwik8"}
    text_sha256 = "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"


class OfficialEnwik8(Enwik8):
    """Without newlines; the vocabulary is what occurs in all three splits, by frequency."""

    name = "enwik8-official"
    level = CORPORA[name].level
    split_rule = CORPORA[name].split_rule
    counted = SPLITS

    def vocabulary(self, texts: Mapping[Split, Text]) -> Vocabulary:
        return ByteVocabulary.from_counts(self.count(texts))

    def pieces(self, text: Text) -> Iterator[str]:
        return (piece.replace("\n", "") for piece in super().pieces(text))


EDGE = 1 << 10
"""More bytes than there are spaces at the edge of a split."""


class Text8(HundredMillion):
    """As the official preparation: spaces at the edges of a split are dropped.

    The vocabulary is what occurs in all three splits, 27 symbols. The official `_` is a space here.
    """

    name = "text8"
    level = CORPORA[name].level
    split_rule = CORPORA[name].split_rule
    counted = SPLITS
    archive = mahoney(
        "text8.zip", "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232"
    )
    members: ClassVar[Mapping[str, str]] = {"text8": "text8"}
    text_sha256 = "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7"

    def part(self, path: Path, start: int, stop: int) -> Text:
        with path.open("rb") as file:
            file.seek(start)
            head = file.read(min(EDGE, stop - start))
            file.seek(max(start, stop - EDGE))
            tail = file.read(stop - file.tell())
        before, after = len(head) - len(head.lstrip()), len(tail) - len(tail.rstrip())
        return Text(path, start + before, stop - after)


SHA256 = "34c1c63050c87cc8477b9ae36b1cb0edf372612c92938b742e579a7109c20fa4"
"""Of the 6,089,746 decompressed bytes."""

FILE = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
REMEDY = "pip install 'txlbench[sample]'"


class EnwikiSample(Source):
    """The sample from gensim's test data, or from a copy of it, compressed or not."""

    name = "enwiki-sample"
    level = CORPORA[name].level
    split_rule = CORPORA[name].split_rule

    def __init__(self, from_file: Path | None = None) -> None:
        self.from_file = from_file

    def checksum(self) -> str:
        return SHA256

    def texts(self, scratch: Path) -> Mapping[Split, Text]:
        return cut(self.xml(scratch), self.level)

    def xml(self, scratch: Path) -> Path:
        """The decompressed sample, unpacked to `scratch` and checked."""
        path = self.from_file or _packaged()
        text = scratch / "enwiki-sample.xml"
        found = _unpack(path, text)
        if found != SHA256:
            remedy = "give another copy" if self.from_file else REMEDY
            raise UserError(f"{path}: SHA-256 of the text is {found}, not {SHA256}", remedy)
        return text


def _packaged() -> Path:
    """The file inside the installed gensim package."""
    package = find_spec("gensim")
    for folder in (package and package.submodule_search_locations) or ():
        path = Path(folder, "test", "test_data", FILE)
        if path.is_file():
            return path
    missing = "the gensim package is missing" if package is None else f"gensim lacks {FILE}"
    raise UserError(f"enwiki-sample: {missing}", REMEDY)


def _unpack(path: Path, text: Path) -> str:
    """Writes the text of `path`, decompressed if need be, to `text`; returns its SHA-256."""
    if not path.is_file():
        raise UserError(f"{path}: no such file", f"give {FILE} or its decompressed text")
    digest = hashlib.sha256()
    try:
        with _opened(path) as source, text.open("wb") as target:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                target.write(chunk)
    except (EOFError, OSError) as error:
        if getattr(error, "errno", None) is not None:  # Not bz2's, but the file system's.
            raise
        raise UserError(f"{path}: the compressed file is damaged", "copy it again") from error
    return digest.hexdigest()


def _opened(path: Path) -> BinaryIO | bz2.BZ2File:
    with path.open("rb") as file:
        compressed = file.read(3) == b"BZh"
    return bz2.open(path) if compressed else path.open("rb")
