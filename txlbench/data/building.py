"""From a source to the files of a prepared corpus, in memory that does not grow with the text."""

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.config.section import Split
from txlbench.data.corpus import SCHEMA, ids_file
from txlbench.data.source import Source
from txlbench.data.text import Text
from txlbench.data.unigram import Counts, unigram_losses
from txlbench.data.vocabulary import UNKNOWN, Vocabulary
from txlbench.errors import UserError
from txlbench.files import write_json


@dataclass(frozen=True)
class EncodedSplit:
    """What is known of a split whose ids are written: counts by id [V], and its text's digest."""

    counts: NDArray[np.int64]
    digest: str

    @property
    def tokens(self) -> int:
        return int(self.counts.sum())


def build(source: Source, checksum: str, directory: Path, scratch: Path) -> None:
    """Writes ids, vocabulary and facts of `source` to `directory`.

    Args:
        checksum: what the source had when `directory` was named for it.
        scratch: a place for files that are not kept.

    Raises:
        UserError: if a text cannot be had or read, changes meanwhile, or a split of it has fewer
            than two tokens.
    """
    texts = source.texts(scratch)
    vocabulary, unknown = _vocabulary(source, texts)
    encoded = {
        split: _encode(source.pieces(text), vocabulary, ids_file(directory, split))
        for split, text in texts.items()
    }
    if source.checksum() != checksum:
        raise UserError(f"{texts['train'].path}: changed while it was read", "run again")
    _check_lengths(texts, encoded)
    counts = {split: part.counts for split, part in encoded.items()}
    warnings = [
        *source.review(vocabulary, counts),
        *_unknown_warnings(unknown, vocabulary, counts),
        *_identity_warnings(encoded),
    ]
    vocabulary.save(directory / "vocabulary.json")
    content = {
        "schema": SCHEMA,
        "level": source.level,
        "checksum": checksum,
        "split_rule": source.split_rule,
        "dtype": vocabulary.dtype.str,
        "tokens": {split: part.tokens for split, part in encoded.items()},
        "unigram": unigram_losses(counts),
        "unknown": {split: symbols.total() for split, symbols in unknown.items()},
        "warnings": warnings,
    }
    write_json(directory / "corpus.json", content)


def _vocabulary(
    source: Source, texts: Mapping[Split, Text]
) -> tuple[Vocabulary, dict[Split, Counter[str]]]:
    """The vocabulary, and for valid and test the symbols that became `<unk>` in it."""
    vocabulary = source.vocabulary(texts)
    unknown: dict[Split, Counter[str]] = {
        split: unknown_symbols(vocabulary, source.pieces(text))
        for split, text in texts.items()
        if split != "train"
    }
    return vocabulary.with_unknown() if any(unknown.values()) else vocabulary, unknown


def unknown_symbols(vocabulary: Vocabulary, pieces: Iterable[str]) -> Counter[str]:
    """The symbols of a text that `vocabulary` lacks, with how often each occurs."""
    unknown: Counter[str] = Counter()
    for piece in pieces:
        if (vocabulary.lookup(piece) < 0).any():
            unknown.update(s for s in vocabulary.split(piece) if s not in vocabulary.index)
    return unknown


def _encode(pieces: Iterable[str], vocabulary: Vocabulary, path: Path) -> EncodedSplit:
    """Writes the ids of a text to `path`."""
    counts: NDArray[Any] = np.zeros(len(vocabulary), dtype=np.int64)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for piece in pieces:
            ids = vocabulary.encode_piece(piece)
            counts += np.bincount(ids, minlength=len(vocabulary))
            digest.update(piece.encode())
            file.write(ids.astype(vocabulary.dtype).tobytes())
        file.flush()
        os.fsync(file.fileno())
    return EncodedSplit(counts, digest.hexdigest())


def _check_lengths(texts: Mapping[Split, Text], encoded: Mapping[Split, EncodedSplit]) -> None:
    for split, part in encoded.items():
        if part.tokens < 2:
            raise UserError(
                f"{texts[split].path}: {part.tokens} tokens in the {split} split, 2 are needed to "
                "predict one from another",
                "give a longer text, or valid and test files",
            )


def _unknown_warnings(
    unknown: Mapping[Split, Counter[str]], vocabulary: Vocabulary, counts: Counts
) -> list[str]:
    """About symbols that became `<unk>`, unless train has it too, so that it is learned."""
    if UNKNOWN in vocabulary.index and counts["train"][vocabulary.index[UNKNOWN]]:
        return []
    return [
        f"{split} has {symbols.total():,} tokens ({len(symbols):,} distinct, such as "
        f"{next(iter(symbols))!r}) that train lacks; they became <unk>, which is never trained"
        for split, symbols in unknown.items()
        if symbols
    ]


def _identity_warnings(encoded: Mapping[Split, EncodedSplit]) -> list[str]:
    return [
        f"{one} and {other} are identical; numbers on them are not independent"
        for one, other in itertools.combinations(encoded, 2)
        if encoded[one].digest == encoded[other].digest
    ]
