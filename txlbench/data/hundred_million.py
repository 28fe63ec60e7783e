"""The first 10^8 bytes of Wikipedia, split by bytes: what `enwik8` and `text8` share."""

import zipfile
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

from txlbench.config.section import Split
from txlbench.data.fetching import PublishedFile
from txlbench.data.published import Published, verify
from txlbench.data.splits import SPLITS
from txlbench.data.text import Text
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
