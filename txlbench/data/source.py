"""Sources of corpora: a checksum, a text for each split, and how texts become symbols."""

import csv
import hashlib
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from txlbench.config.base import Split
from txlbench.config.catalogue import CORPORA, Level
from txlbench.config.run_config import CorpusConfig
from txlbench.data.download import own_checksum, own_paths, text_files
from txlbench.data.text import SPLITS, TextPart, cut, normalised
from txlbench.data.vocabulary import VOCABULARIES, ByteVocabulary, Vocabulary
from txlbench.errors import UserError, suggestion

Counts = Mapping[Split, NDArray[np.int64]]
"""Number of occurrences of each id in each split, [V]."""


def unigram_losses(counts: Counts) -> dict[Split, float]:
    """Returns nats a token of every split under add-one-smoothed unigram frequencies of train.

    A model of any use lies well below it; one that stays there has learned nothing.
    """
    smoothed: NDArray[Any] = counts["train"] + 1
    log_probs = np.log(smoothed / smoothed.sum())
    return {split: float(-(c @ log_probs) / c.sum()) for split, c in counts.items()}


class CorpusSource(ABC):
    """A corpus before its preparation.

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
        """Returns the SHA-256 of the source bytes: constant, or cheap for unchanged files."""

    @abstractmethod
    def texts(self, scratch: Path) -> Mapping[Split, TextPart]:
        """Returns the text of each split; files fetched or unpacked for it go to `scratch`.

        Raises:
            UserError: if a file is missing or is not what its checksum says.
        """

    def place(self, split: Split) -> str:  # noqa: ARG002
        """Names the text of `split` in messages."""
        return self.name

    def vocabulary(self, texts: Mapping[Split, TextPart]) -> Vocabulary:
        """Returns the symbols: all bytes, or what the counted splits contain."""
        if self.level == "byte":
            return ByteVocabulary.full()
        return VOCABULARIES[self.level].from_counts(self.count(texts))

    def count(self, texts: Mapping[Split, TextPart]) -> Counter[str]:
        """Counts each symbol in the counted splits, in order of first occurrence."""
        pieces = (piece for split in self.counted for piece in self.pieces(texts[split]))
        return VOCABULARIES[self.level].count(pieces)

    def pieces(self, text: TextPart) -> Iterator[str]:
        """Yields the pieces of `text` that the vocabulary splits; a hook for other rules."""
        return text.pieces(self.level)

    def review(
        self,
        vocabulary: Vocabulary,  # noqa: ARG002
        counts: Counts,  # noqa: ARG002
    ) -> list[str]:
        """Returns warnings about the result, a sentence each.

        Args:
            counts: how often each id occurs in each split.

        Raises:
            UserError: if it is not the corpus that it should be.
        """
        return []


class CatalogueSource(CorpusSource):
    """A corpus of the catalogue; a subclass sets `name` and reads the texts.

    Args:
        from_file: a file or folder of the user's, in place of what would be fetched.
    """

    def __init__(self, from_file: Path | None = None) -> None:
        entry = CORPORA[self.name]
        self.level, self.split_rule = entry.level, entry.split_rule
        self.from_file = from_file


class ComputedSource(CatalogueSource):
    """A corpus that is computed, one letter a symbol; each split has a seed of its own.

    A subclass sets `name` and `SHA256`, of the texts of train, valid and test, one after the other.
    """

    SEEDS: ClassVar[Mapping[Split, int]] = {"train": 1, "valid": 2, "test": 3}
    SHA256: ClassVar[str]

    def __init__(self, from_file: Path | None = None) -> None:
        if from_file is not None:
            raise UserError(f"--from-file {from_file}: {self.name} is computed", "drop the option")
        super().__init__()

    @abstractmethod
    def compute(self, split: Split, length: int, seed: int) -> bytes:
        """The text of a split, `length` letters in UTF-8."""

    def checksum(self) -> str:
        return self.SHA256

    def texts(self, scratch: Path) -> Mapping[Split, TextPart]:
        digest = hashlib.sha256()
        texts: dict[Split, TextPart] = {}
        for split, seed in self.SEEDS.items():
            text = self.compute(split, CORPORA[self.name].tokens[split] or 0, seed)
            digest.update(text)
            path = scratch / f"{split}.txt"
            path.write_bytes(text)
            texts[split] = TextPart(path)
        assert digest.hexdigest() == self.SHA256, "numpy no longer draws the same bits"
        return texts


LARGEST_FIELD = 1 << 30
"""Characters of one field of a CSV file; the csv module stops at 128 KiB by default."""


class TextFile(CorpusSource):
    """The user's own text: a file, a directory of texts, or a column of a CSV or TSV file.

    One text is split 90/5/5; three are the splits. The texts of a directory, and the rows of a
    column, follow one another in sorted and in given order, each ending in a newline.
    """

    def __init__(self, config: CorpusConfig) -> None:
        self.config = config
        self.name = config.name
        self.level = config.resolved_level
        self.split_rule = config.split_rule
        self.paths = dict(zip(SPLITS, own_paths(config), strict=False))

    def checksum(self) -> str:
        return own_checksum(self.config)

    def texts(self, scratch: Path) -> Mapping[Split, TextPart]:
        files = {split: self._file(path, scratch / split) for split, path in self.paths.items()}
        if len(files) == 1:
            return cut(files["train"], self.level)
        return {split: TextPart(path) for split, path in files.items()}

    def place(self, split: Split) -> str:
        return str(self.paths.get(split, self.paths["train"]))

    def _file(self, path: Path, target: Path) -> Path:
        """Returns `path` if it is a text already, else writes its texts to `target`."""
        if self.config.column is not None:
            texts: Iterable[Iterable[str]] = ([text] for text in self._column(path))
        elif path.is_dir():
            texts = (TextPart(file).pieces(self._reading) for file in text_files(path))
        else:
            return path
        encoding = "latin-1" if self.level == "byte" and path.is_dir() else "utf-8"
        with target.open("w", encoding=encoding, newline="") as file:
            for pieces in texts:
                last = "\n"
                for piece in pieces:
                    file.write(piece)
                    last = piece[-1:] or last
                if last != "\n":
                    file.write("\n")
        return target

    @property
    def _reading(self) -> Level:
        return "byte" if self.level == "byte" else "char"

    def _column(self, path: Path) -> Iterator[str]:
        """Yields the fields of the column, row by row."""
        deque(normalised(path), maxlen=0)  # names what is not UTF-8 by its place
        csv.field_size_limit(LARGEST_FIELD)
        column, delimiter = str(self.config.column), "\t" if path.suffix == ".tsv" else ","
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, delimiter=delimiter, strict=True)
            try:
                names = list(rows.fieldnames or ())
                if column not in names:
                    raise UserError(f"{path}: no column '{column}'", suggestion(column, names))
                yield from (row[column] or "" for row in rows)
            except csv.Error as error:
                raise UserError(
                    f"{path}: line {rows.line_num}: {error}", "give a CSV file with a header"
                ) from error

    def review(self, vocabulary: Vocabulary, counts: Counts) -> list[str]:  # noqa: ARG002
        """Warns of splits far from 90, 5 and 5 percent, which lines of unequal length give."""
        if len(self.paths) > 1:
            return []
        tokens = {split: int(count.sum()) for split, count in counts.items()}
        total = sum(tokens.values())
        if all(total / 40 <= tokens[split] <= total / 10 for split in ("valid", "test")):
            return []
        found = " / ".join(f"{count:,}" for count in tokens.values())
        return [
            f"the 90/5/5 split has {found} tokens, since it falls between {UNITS_OF[self.level]}; "
            "give valid and test files"
        ]


UNITS_OF: Mapping[Level, str] = {"byte": "bytes", "char": "characters", "word": "lines"}
