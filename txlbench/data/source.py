"""What a corpus is made from: its checksum, its texts, and how they become symbols.

The unigram model: what a model that ignores all context would score.

Any text of the user's: one file that is split 90/5/5, or a file for each split.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from txlbench.config.base import Split
from txlbench.config.catalogue import Level
from txlbench.config.run_config import CorpusConfig
from txlbench.data.download import combined_checksum
from txlbench.data.text import SPLITS, Text, cut
from txlbench.data.vocabulary import VOCABULARIES, ByteVocabulary, Vocabulary

Counts = Mapping[Split, NDArray[np.int64]]
"""How often each id occurs in each split, [V]."""


def unigram_losses(counts: Counts) -> dict[Split, float]:
    """Nats a token of every split under add-one-smoothed unigram frequencies of train.

    A model of any use lies well below it; one that stays there has learned nothing.
    """
    smoothed: NDArray[Any] = counts["train"] + 1
    log_probs = np.log(smoothed / smoothed.sum())
    return {split: float(-(c @ log_probs) / c.sum()) for split, c in counts.items()}


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


class OwnText(Source):
    """The files that `config` names, read where they are."""

    def __init__(self, config: CorpusConfig) -> None:
        given = (config.path, config.valid, config.test)
        self.name = config.name
        self.level = config.resolved_level
        self.split_rule = config.split_rule
        self.paths = [Path(path).expanduser() for path in given if path is not None]

    def checksum(self) -> str:
        return combined_checksum(self.paths)

    def texts(self, scratch: Path) -> Mapping[Split, Text]:  # noqa: ARG002
        if len(self.paths) == 1:
            return cut(self.paths[0], self.level)
        return dict(zip(SPLITS, map(Text, self.paths), strict=True))
