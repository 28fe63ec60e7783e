"""Wikipedia as bytes and characters: `enwik8`, `enwik8-official`, `text8`, `enwiki-sample`.

`enwik8` and `text8` are made of the first 10^8 bytes of Wikipedia and split by bytes: XML as it
is, and only the letters a to z and the space. `enwik8-official` is enwik8 as the released code
reads it: line by line without their ends (`add_eos` is off), so that its model never sees a newline
and has 204 symbols (Dai et al. 2019, code). Streams that keep newlines score about 0.02 bits a
character lower; numbers on the two are not comparable.

`enwiki-sample` is 6 MB of Wikipedia XML without a download: a test file of the gensim package,
found without importing the package, and split 90/5/5 by bytes. `enwiki-shuffled` is the same bytes
with the sentences of each split in random order.
"""

import bz2
import hashlib
import re
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, ClassVar

import numpy as np

from txlbench.config.base import Split
from txlbench.data.download import PublishedFile
from txlbench.data.planted import uniform
from txlbench.data.published import PublishedCorpus, verify
from txlbench.data.source import CatalogueSource
from txlbench.data.text import CHUNK, SPLITS, TextPart, cut
from txlbench.data.vocabulary import ByteVocabulary, Vocabulary
from txlbench.errors import UserError

ADDRESSES = ("http://mattmahoney.net/dc", "https://data.deepai.org")


def mahoney(name: str, sha256: str) -> PublishedFile:
    """Describes an archive of Matt Mahoney's, at its own address and mirrored."""
    return PublishedFile(name, tuple(f"{address}/{name}" for address in ADDRESSES), sha256)


class WikipediaBytes(PublishedCorpus):
    """One text of `sum(sizes)` bytes, whose splits are consecutive.

    Attributes:
        sizes: bytes of train, valid and test.
        text_sha256: of the text, so that a copy of it is as good as the archive.
    """

    sizes: ClassVar[tuple[int, int, int]] = (90_000_000, 5_000_000, 5_000_000)
    text_sha256: ClassVar[str]

    def texts(self, scratch: Path) -> Mapping[Split, TextPart]:
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

    def part(self, path: Path, start: int, stop: int) -> TextPart:
        """Returns the split made of bytes [start, stop)."""
        return TextPart(path, start, stop)

    def _text(self, scratch: Path) -> Path:
        given = self.from_file
        if given is not None and given.is_file() and not zipfile.is_zipfile(given):
            verify(given, self.text_sha256)
            return given
        (path,) = self.files(scratch).values()
        return path


class Enwik8(WikipediaBytes):
    """All bytes; the vocabulary is the 256 values."""

    name = "enwik8"
    archive = mahoney(
        "enwik8.zip", "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc"
    )
    members: ClassVar[Mapping[str, str]] = {"enwik8": "enwik8"}
    text_sha256 = "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8"


class OfficialEnwik8(Enwik8):
    """Without newlines; the vocabulary is what occurs in all three splits, by frequency."""

    name = "enwik8-official"
    counted = SPLITS

    def vocabulary(self, texts: Mapping[Split, TextPart]) -> Vocabulary:
        return ByteVocabulary.from_counts(self.count(texts))

    def pieces(self, text: TextPart) -> Iterator[str]:
        return (piece.replace("\n", "") for piece in super().pieces(text))


EDGE = 1 << 10
"""Bytes that are searched for spaces at the edge of a split, more than there are."""


class Text8(WikipediaBytes):
    """Letters and spaces; those at the edges of a split are dropped, as in the official code.

    The vocabulary is what occurs in all three splits, 27 symbols. The official `_` is a space here.
    """

    name = "text8"
    counted = SPLITS
    archive = mahoney(
        "text8.zip", "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232"
    )
    members: ClassVar[Mapping[str, str]] = {"text8": "text8"}
    text_sha256 = "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7"

    def part(self, path: Path, start: int, stop: int) -> TextPart:
        with path.open("rb") as file:
            file.seek(start)
            head = file.read(min(EDGE, stop - start))
            file.seek(max(start, stop - EDGE))
            tail = file.read(stop - file.tell())
        before, after = len(head) - len(head.lstrip()), len(tail) - len(tail.rstrip())
        return TextPart(path, start + before, stop - after)


SHA256 = "34c1c63050c87cc8477b9ae36b1cb0edf372612c92938b742e579a7109c20fa4"
"""SHA-256 of the 6,089,746 decompressed bytes."""

FILE = "enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
REMEDY = "pip install 'txlbench[sample]'"


class EnwikiSample(CatalogueSource):
    """The sample from gensim's test data, or from a copy of it, compressed or not."""

    name = "enwiki-sample"

    def checksum(self) -> str:
        return SHA256

    def texts(self, scratch: Path) -> Mapping[Split, TextPart]:
        return cut(self.xml(scratch), self.level)

    def xml(self, scratch: Path) -> Path:
        """Returns the decompressed sample, unpacked to `scratch` and verified."""
        path = self.from_file or _packaged()
        text = scratch / "enwiki-sample.xml"
        found = _unpack(path, text)
        if found != SHA256:
            remedy = "give another copy" if self.from_file else REMEDY
            raise UserError(f"{path}: SHA-256 of the text is {found}, not {SHA256}", remedy)
        return text


SENTENCE_ENDS = re.compile(rb"(?<=[.!?] )|(?<=\n)")
SHUFFLED_SHA256 = "4906a500a039b62aa8c6e68ea0c3f03d861047ae0718009b3031c96e03a89ac1"
"""SHA-256 of the texts of train, valid and test, one after the other."""


class EnwikiShuffled(EnwikiSample):
    """Wikipedia without long dependencies, as One Billion Word is: its sentences are shuffled.

    A sentence ends with its line, or behind a full stop, question or exclamation mark and a space;
    half of the bytes are in sentences of more than 200. Each split has the bytes that it has in
    `enwiki-sample`, so the two differ in nothing but what stands before a sentence.
    """

    name = "enwiki-shuffled"

    def checksum(self) -> str:
        return SHUFFLED_SHA256

    def texts(self, scratch: Path) -> Mapping[Split, TextPart]:
        source, digest = np.random.PCG64(1), hashlib.sha256()
        texts: dict[Split, TextPart] = {}
        for split, part in super().texts(scratch).items():
            sentences = SENTENCE_ENDS.split(part.path.read_bytes()[part.start : part.stop])
            order = np.argsort(uniform(source, len(sentences)), kind="stable")
            text = b"".join(sentences[place] for place in order)
            digest.update(text)
            path = scratch / f"{split}.txt"
            path.write_bytes(text)
            texts[split] = TextPart(path)
        assert digest.hexdigest() == SHUFFLED_SHA256, "numpy no longer draws the same bits"
        return texts


def _packaged() -> Path:
    """Finds the file inside the installed gensim package."""
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
