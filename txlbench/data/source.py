"""What a corpus is made from: its checksum, its texts, and how they become symbols."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from txlbench.config.catalogue import Level
from txlbench.config.section import Split
from txlbench.data.levels import VOCABULARIES, ByteVocabulary
from txlbench.data.text import Text
from txlbench.data.unigram import Counts
from txlbench.data.vocabulary import Vocabulary


class Source(ABC):
    """One corpus before its preparation; a corpus of the catalogue is a subclass in a file.

    The catalogue's corpora are made by `Class(from_file)`, where `from_file` is a file that the
    user has instead of what would be fetched, or None.

    Attributes:
        name: names the prepared directory.
        level: what a token is.
        split_rule: how the splits come about.
        counted: the splits whose symbols make the vocabulary.
    """

    name: str
    level: Level
    split_rule: str
    counted: ClassVar[tuple[Split, ...]] = ("train",)

    @abstractmethod
    def checksum(self) -> str:
        """The SHA-256 of the source bytes; constant, or cheap if the files did not change."""

    @abstractmethod
    def texts(self, scratch: Path) -> Mapping[Split, Text]:
        """The text of each split; files fetched or unpacked for it go to `scratch`.

        Raises:
            UserError: if a file is missing or is not what its checksum says.
        """

    def vocabulary(self, texts: Mapping[Split, Text]) -> Vocabulary:
        """The symbols: all bytes, or what the counted splits contain."""
        if self.level == "byte":
            return ByteVocabulary.full()
        return VOCABULARIES[self.level].from_counts(self.count(texts))

    def count(self, texts: Mapping[Split, Text]) -> Counter[str]:
        """How often each symbol occurs in the counted splits, in order of first occurrence."""
        pieces = (piece for split in self.counted for piece in self.pieces(texts[split]))
        return VOCABULARIES[self.level].count(pieces)

    def pieces(self, text: Text) -> Iterator[str]:
        """The pieces of `text` that the vocabulary splits; a hook for corpora with other rules."""
        return text.pieces(self.level)

    def review(
        self,
        vocabulary: Vocabulary,  # noqa: ARG002
        counts: Counts,  # noqa: ARG002
    ) -> list[str]:
        """What the user should know of the result, a sentence each.

        Args:
            counts: how often each id occurs in each split.

        Raises:
            UserError: if it is not the corpus that it should be.
        """
        return []
