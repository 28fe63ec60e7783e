"""From a source to the files of a prepared corpus, in memory that does not grow with the text.

Getting a prepared corpus: the one that lies on disk, else built now.

A prepared directory is named for the checksum of its source and never changes, so an edited text
gets a new one, and runs that still read the old one are not disturbed.
"""

import errno
import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.config.base import Split
from txlbench.config.catalogue import CORPUS_LOADERS
from txlbench.config.identity import fingerprint
from txlbench.config.run_config import CorpusConfig
from txlbench.data.corpus import SCHEMA, Corpus, ids_file, open_corpus
from txlbench.data.download import create_directory, data_root
from txlbench.data.source import Counts, OwnText, Source, unigram_losses
from txlbench.data.text import Text
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


def prepare(config: CorpusConfig, from_file: Path | None = None) -> Corpus:
    """The corpus of `config`, built under `$TXLBENCH_DATA` or the user's cache if need be.

    Args:
        from_file: what the user has instead of the file that a catalogue's corpus would fetch.

    Raises:
        UserError: if the text is missing, damaged, too short or not UTF-8 where it must be, or
            the place for prepared corpora cannot be written.
    """
    source = _source(config, from_file)
    with _faults_as_user_errors():
        checksum = source.checksum()
        directory = _directory(source, checksum)
        if not directory.is_dir():
            create_directory(directory, partial(build, source, checksum))
    return open_corpus(directory, config.name)


def find_prepared(config: CorpusConfig) -> Corpus | None:
    """The corpus of `config` if it is prepared already; builds and fetches nothing."""
    source = _source(config, None)
    with _faults_as_user_errors():
        directory = _directory(source, source.checksum())
    return open_corpus(directory, config.name) if directory.is_dir() else None


def _source(config: CorpusConfig, from_file: Path | None) -> Source:
    if config.path is not None:
        if from_file is not None:
            raise UserError(
                f"--from-file {from_file}: '{config.name}' is a text already",
                "drop --from-file, which stands in for what a named corpus fetches",
            )
        return OwnText(config)
    if config.name not in CORPUS_LOADERS:
        known = ", ".join(CORPUS_LOADERS.names())
        raise UserError(
            f"corpus '{config.name}' cannot be prepared by name",
            f"give the path of its text, or one of: {known}",
        )
    source = CORPUS_LOADERS.load(config.name)(from_file)
    assert isinstance(source, Source)
    return source


def _directory(source: Source, checksum: str) -> Path:
    made_from = [SCHEMA, source.level, source.split_rule, checksum]
    return data_root() / f"{source.name}-{source.level}-{fingerprint(made_from, length=16)}"


@contextmanager
def _faults_as_user_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        remedy = "check the path and its permissions"
        if error.errno == errno.ENOSPC:
            remedy = "free some space, or set TXLBENCH_DATA to a place that has it"
        place = error.filename or data_root()
        raise UserError(f"{place}: {error.strerror or error}", remedy) from error
