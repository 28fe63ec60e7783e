"""Text as tokens with byte offsets, so that models with different tokenizers share one text.

Ids of a text are kept under the data folder, named for the text and the tokenizer.
"""

import contextlib
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from txlbench.config.base import Part
from txlbench.config.identity import fingerprint
from txlbench.data.corpus import Corpus
from txlbench.data.download import data_root
from txlbench.data.vocabulary import EOS, UNKNOWN, Vocabulary, WordVocabulary
from txlbench.errors import UserError
from txlbench.files import write_atomically
from txlbench.records.loss_file import read_npz

SCHEMA = "txlbench.tokenized/1"
"""Part of the names of kept ids: raising it makes them anew."""


class Tokenizer(Protocol):
    """What cuts a text into tokens that are, one after another, exactly its bytes."""

    @property
    def bos(self) -> int | None:
        """The id that the tokenizer puts before a text; None if it adds none."""

    @property
    def prefix(self) -> int:
        """The id before a text's first token where a program wants one: BOS, or else EOS."""

    @property
    def unknown(self) -> int | None:
        """The id of text that it has no token for; None if there is none."""

    @property
    def fingerprint(self) -> str:
        """What tells it from others: equal tokenizers give equal ids."""

    def encode(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Token ids [T] of `text` without BOS, and the end [T] of each in bytes of UTF-8.

        Raises:
            UserError: if the tokens do not give the text back.
        """

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`."""


@dataclass(frozen=True)
class VocabularyTokenizer:
    """A vocabulary of bytes, characters or words as a `Tokenizer`; it has no BOS.

    A word takes the space before it along; a newline is the word `<eos>`. Texts begin after a
    newline where something has to stand before them, or after the first symbol without one.

    Attributes:
        reference: what messages call its model.
    """

    vocabulary: Vocabulary
    reference: str
    bos: None = None

    @property
    def prefix(self) -> int:
        """See `Tokenizer.prefix`."""
        index = self.vocabulary.index
        return index.get(EOS, index.get("\n", 0))

    @property
    def unknown(self) -> int | None:
        """See `Tokenizer.unknown`."""
        return self.vocabulary.index.get(UNKNOWN)

    @property
    def fingerprint(self) -> str:
        """See `Tokenizer.fingerprint`."""
        return self.vocabulary.fingerprint

    def encode(self, text: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """See `Tokenizer.encode`.

        Raises:
            UserError: also for a symbol that a vocabulary without `<unk>` lacks.
        """
        ids, level = self.vocabulary.encode(text), self.vocabulary.level
        if level == "byte":
            return ids, np.arange(1, len(ids) + 1)
        ends = _ends_of_characters(text)
        if level == "word":
            if self.vocabulary.join(WordVocabulary.split(text)) != text:
                raise UserError(
                    f"{self.reference}: its words do not give the text back, which has other "
                    "whitespace than single spaces and newlines",
                    "give a corpus of words with --corpus",
                )
            ends = ends[[match.end() - 1 for match in re.finditer(r"\n|\S+", text)]]
        return ids, ends

    def decode(self, ids: Iterable[int]) -> str:
        """See `Tokenizer.decode`."""
        return self.vocabulary.decode(ids)


def _ends_of_characters(text: str) -> NDArray[np.int64]:
    """The end of each character in bytes of UTF-8."""
    codes = np.frombuffer(text.encode("utf-32-le"), dtype="<u4")
    lengths = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
    return np.cumsum(lengths)


@dataclass(frozen=True, eq=False)
class SharedText:
    """The text of a split of a corpus, the same for every model.

    Attributes:
        content: bytes, valid UTF-8.
        left_out: bytes at both ends of the split that are parts of characters.
        name, checksum, split: of the corpus.
        joined: whether the text is tokens joined as the corpus defines it, not the source's bytes.
    """

    content: bytes
    left_out: int
    name: str
    checksum: str
    split: Part
    joined: bool

    @property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.content).hexdigest()


def shared_text(corpus: Corpus, split: Part) -> SharedText:
    """The text of a split in whole characters; UserError if it is not UTF-8."""
    raw = corpus.text(split)
    first = next((i for i, byte in enumerate(raw[:4]) if not 0x80 <= byte < 0xC0), 0)
    try:
        raw[first:].decode()
        last = len(raw)
    except UnicodeDecodeError as error:
        last = first + error.start
        if error.reason != "unexpected end of data":
            raise UserError(
                f"{corpus.name}: byte {last:,} of {split}: 0x{raw[last]:02x} is not UTF-8, which "
                "tokenizers read",
                "give a text in UTF-8, or models of one vocabulary",
            ) from error
    return SharedText(
        raw[first:last],
        len(raw) - last + first,
        corpus.name,
        corpus.checksum,
        split,
        joined=corpus.level == "word",
    )


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """A text as tokens.

    Attributes:
        ids: [T].
        ends: [T], the byte before which each token ends, in order; a token may be empty.
        unknown: tokens that stand for text the tokenizer has no token for.
    """

    ids: NDArray[np.int64]
    ends: NDArray[np.int64]
    unknown: int = 0

    def index(self, boundaries: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of tokens that end at or before each byte, as of a boundary between tokens."""
        return np.searchsorted(self.ends, boundaries, side="right")


def tokenized(text: SharedText, tokenizer: Tokenizer) -> TokenizedText:
    """The tokens of `text`; a pretrained model's are kept under the data folder.

    Raises:
        UserError: if the tokens do not give the text back.
    """
    if isinstance(tokenizer, VocabularyTokenizer):
        return _encoded(text, tokenizer)
    name = fingerprint([SCHEMA, text.digest, tokenizer.fingerprint], length=32)
    path = data_root() / "tokenized" / f"{name}.npz"
    kept = _kept(path, len(text.content))
    if kept is not None:
        return TokenizedText(*kept, _count(kept[0], tokenizer))
    found = _encoded(text, tokenizer)
    # Only a shortcut: a data directory that others share may be read-only.
    with contextlib.suppress(OSError):
        write_atomically(path, lambda file: np.savez(file, ids=found.ids, ends=found.ends))
    return found


def _encoded(text: SharedText, tokenizer: Tokenizer) -> TokenizedText:
    ids, ends = tokenizer.encode(text.content.decode())
    return TokenizedText(ids, ends, _count(ids, tokenizer))


def _count(ids: NDArray[np.int64], tokenizer: Tokenizer) -> int:
    return 0 if tokenizer.unknown is None else int(np.count_nonzero(ids == tokenizer.unknown))


def _kept(path: Path, length: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Ids and ends in the file at `path`; None if there is none, or it is damaged."""
    try:
        arrays = read_npz(path)
        ids, ends = arrays["ids"], arrays["ends"]
    except (UserError, KeyError):
        return None
    whole = ids.dtype == ends.dtype == np.int64 and ids.shape == ends.shape and ids.ndim == 1
    return (ids, ends) if whole and len(ends) and ends[-1] == length else None
