"""What a corpus is made from: its checksum, its texts, and how they become symbols."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path

from txlbench.config.catalogue import Level
from txlbench.config.schema import Split
from txlbench.data.levels import VOCABULARIES, ByteVocabulary
from txlbench.data.text import Text
from txlbench.data.vocabulary import Vocabulary


class Source(ABC):
    """One corpus before its preparation; a corpus of the catalogue is a subclass in a file.

    The catalogue's corpora are made by `Class(from_file)`, where `from_file` is a file that the
    user has instead of what would be fetched, or None.

    Attributes:
        name: names the prepared directory.
        level: what a token is.
        split_rule: how the splits come about.
    """

    name: str
    level: Level
    split_rule: str

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
        """The symbols: all bytes, or what the training text contains."""
        if self.level == "byte":
            return ByteVocabulary.full()
        kind = VOCABULARIES[self.level]
        return kind.from_counts(kind.count(self.pieces(texts["train"])))

    def pieces(self, text: Text) -> Iterator[str]:
        """The pieces of `text` that the vocabulary splits; a hook for corpora with other rules."""
        return text.pieces(self.level)
