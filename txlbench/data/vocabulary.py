"""Vocabularies of bytes, characters or words: symbols, their ids, and how text is split and joined.

Ids of characters and words go by descending frequency in the training text, ties by first
occurrence; `<eos>` is word 0, as in the official code. The byte vocabulary is always the 256
values. `<unk>` exists where the training text contains it as a word, or where valid or test has
symbols that train lacks.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from txlbench.config.catalogue import Level
from txlbench.config.identity import fingerprint
from txlbench.errors import UserError
from txlbench.files import read_json, write_json

EOS, UNKNOWN = "<eos>", "<unk>"
SCHEMA = "txlbench.vocabulary/1"


class UnknownSymbolError(UserError):
    """A text has a symbol that a vocabulary without `<unk>` lacks."""

    def __init__(self, symbol: str, size: int) -> None:
        super().__init__(
            f"{symbol!r} is not in the vocabulary of {size} symbols",
            "leave it out; the training text has no such symbol",
        )
        self.symbol = symbol


class Vocabulary(ABC):
    """Symbols by id; a subclass knows how its level splits and joins text.

    Attributes:
        level: what a symbol is.
        special: symbols that come first whatever their frequency.
        symbols: the symbols in order of id.
    """

    level: ClassVar[Level]
    special: ClassVar[tuple[str, ...]] = ()

    def __init__(self, symbols: Iterable[str]) -> None:
        self.symbols = tuple(symbols)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int]) -> "Vocabulary":
        """The vocabulary of a text with these counts, given in order of first occurrence."""
        ranked = sorted(counts, key=lambda symbol: -counts[symbol])
        return cls((*cls.special, *(s for s in ranked if s not in cls.special)))

    @staticmethod
    @abstractmethod
    def split(piece: str) -> Iterable[str]:
        """The symbols of a piece of text as `TextPart.pieces` gives it."""

    @abstractmethod
    def lookup(self, piece: str) -> NDArray[np.int64]:
        """The ids of the symbols of a piece of text, -1 for a symbol without one."""

    @abstractmethod
    def join(self, symbols: Sequence[str]) -> str:
        """The text that `symbols` stand for."""

    @classmethod
    def count(cls, pieces: Iterable[str]) -> Counter[str]:
        """Counts each symbol; memory grows with distinct symbols, not with the text."""
        counts: Counter[str] = Counter()
        for piece in pieces:
            counts.update(cls.split(piece))
        return counts

    def __len__(self) -> int:
        return len(self.symbols)

    @cached_property
    def index(self) -> dict[str, int]:
        """Symbol -> id."""
        return {symbol: number for number, symbol in enumerate(self.symbols)}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of level and symbols."""
        return fingerprint([self.level, self.symbols], length=64)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest unsigned type that holds every id, little-endian."""
        return np.min_scalar_type(max(0, len(self) - 1)).newbyteorder("<")

    def with_unknown(self) -> "Vocabulary":
        """This vocabulary with `<unk>`, at the end if it is new."""
        return self if UNKNOWN in self.index else type(self)((*self.symbols, UNKNOWN))

    def encode_piece(self, piece: str) -> NDArray[np.int64]:
        """The ids of a piece of text as `TextPart.pieces` gives it, `<unk>` for unknown symbols.

        Raises:
            UserError: naming the first unknown symbol if there is no `<unk>`.
        """
        ids = self.lookup(piece)
        missing = ids < 0
        if missing.any():
            if UNKNOWN not in self.index:
                symbol = next(s for s in self.split(piece) if s not in self.index)
                raise UnknownSymbolError(symbol, len(self))
            ids[missing] = self.index[UNKNOWN]
        return ids

    def encode(self, text: str) -> NDArray[np.int64]:
        """The ids of `text`, int64 [T]; UserError as in `encode_piece`."""
        return self.encode_piece(text)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; bytes that are not UTF-8 come out as U+FFFD."""
        return self.join([self.symbols[int(number)] for number in ids])

    def save(self, path: Path) -> None:
        """Writes level and symbols as JSON, atomically."""
        write_json(path, {"schema": SCHEMA, "level": self.level, "symbols": self.symbols})


CODE_POINTS = 0x110000


class CharVocabulary(Vocabulary):
    """Characters; `<unk>` is the one symbol that is longer."""

    level: ClassVar[Level] = "char"

    @staticmethod
    def split(piece: str) -> Iterable[str]:
        return piece

    @cached_property
    def _table(self) -> NDArray[np.int64]:
        table = np.full(CODE_POINTS, -1, dtype=np.int64)
        for number, symbol in enumerate(self.symbols):
            if len(symbol) == 1:
                table[ord(symbol)] = number
        return table

    def lookup(self, piece: str) -> NDArray[np.int64]:
        codes = np.frombuffer(piece.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        return self._table[codes]

    def join(self, symbols: Sequence[str]) -> str:
        return "".join(symbols)


class ByteVocabulary(CharVocabulary):
    """Bytes, each written as the character of the same number, U+0000 to U+00FF."""

    level: ClassVar[Level] = "byte"

    @classmethod
    def full(cls) -> "ByteVocabulary":
        """All 256 values, each its own id."""
        return cls(map(chr, range(256)))

    def encode(self, text: str) -> NDArray[np.int64]:
        return self.encode_piece(text.encode(errors="surrogateescape").decode("latin-1"))

    def join(self, symbols: Sequence[str]) -> str:
        return "".join(symbols).encode("latin-1").decode(errors="replace")


class WordVocabulary(Vocabulary):
    """Words between whitespace; a newline is the word `<eos>`."""

    level: ClassVar[Level] = "word"
    special = (EOS,)

    @staticmethod
    def split(piece: str) -> list[str]:
        return piece.replace("\n", f" {EOS} ").split()

    def lookup(self, piece: str) -> NDArray[np.int64]:
        words = self.split(piece)
        return np.fromiter(map(self.index.get, words, repeat(-1)), dtype=np.int64, count=len(words))

    def join(self, symbols: Sequence[str]) -> str:
        spaced = " ".join("\n" if symbol == EOS else symbol for symbol in symbols)
        return spaced.replace(" \n", "\n").replace("\n ", "\n")


VOCABULARIES: Mapping[Level, type[Vocabulary]] = {
    "byte": ByteVocabulary,
    "char": CharVocabulary,
    "word": WordVocabulary,
}


class _Content(BaseModel):
    """A saved vocabulary."""

    model_config = ConfigDict(strict=True)

    level: Level
    symbols: list[str] = Field(min_length=1)


def likely_level(tokens: Sequence[str]) -> Level:
    """Bytes if they are the 256 values, characters if all are single ones, else words."""
    if tuple(tokens) == ByteVocabulary.full().symbols:
        return "byte"
    single = all(len(token) == 1 for token in tokens if token not in (EOS, UNKNOWN))
    return "char" if single else "word"


def load_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary saved at `path`; UserError if it is not one."""
    try:
        content = _Content.model_validate(read_json(path))
    except ValidationError as error:
        raise UserError(
            f"{path}: not a vocabulary", "delete it or restore it from a copy"
        ) from error
    if len(set(content.symbols)) != len(content.symbols):
        raise UserError(f"{path}: a symbol comes twice", "delete it or restore it from a copy")
    return VOCABULARIES[content.level](content.symbols)
