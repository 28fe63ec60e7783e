"""Bytes, characters and words as the symbols of a vocabulary, and reading saved vocabularies."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from txlbench.config.catalogue import Level
from txlbench.data.vocabulary import EOS, Vocabulary
from txlbench.errors import UserError
from txlbench.files import read_json

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
