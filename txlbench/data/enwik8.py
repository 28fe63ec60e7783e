"""`enwik8`: Wikipedia XML as bytes, and `enwik8-official`, what the released code made of it.

The released code reads lines and drops their ends (`add_eos` is off), so that its model never
sees a newline and has 204 symbols (Dai et al. 2019, code). Streams that keep newlines score about
0.02 bits a character lower; numbers on the two are not comparable.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from txlbench.config.catalogue import CORPORA
from txlbench.config.section import Split
from txlbench.data.hundred_million import HundredMillion, mahoney
from txlbench.data.levels import ByteVocabulary
from txlbench.data.splits import SPLITS
from txlbench.data.text import Text
from txlbench.data.vocabulary import Vocabulary


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
