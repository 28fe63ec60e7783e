"""Prepares a corpus: finds it on disk, or encodes its texts in memory that does not grow with them.

A prepared directory is named for the checksum of its source and never changes, so an edited text
gets a new one, and runs that still read the old one are not disturbed.
"""

import errno
import hashlib
import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.config.base import Split
from txlbench.config.catalogue import CORPORA, load_class
from txlbench.config.identity import fingerprint
from txlbench.config.plugins import naming_plugin
from txlbench.config.run_config import CorpusConfig
from txlbench.data.corpus import SCHEMA, Corpus, ids_file, open_corpus
from txlbench.data.download import create_directory, data_root, own_checksum
from txlbench.data.source import CorpusSource, Counts, TextFile, unigram_losses
from txlbench.data.text import SPLITS, TextPart
from txlbench.data.vocabulary import UNKNOWN, Vocabulary
from txlbench.errors import UserError
from txlbench.files import write_json


@dataclass(frozen=True)
class EncodedSplit:
    """A split whose ids are written: counts by id [V], and the digest of its text."""

    counts: NDArray[np.int64]
    digest: str

    @property
    def tokens(self) -> int:
        return int(self.counts.sum())


def build(source: CorpusSource, checksum: str, directory: Path, scratch: Path) -> None:
    """Writes ids, vocabulary and facts of `source` to `directory`.

    Args:
        checksum: what the source had when `directory` was named for it.
        scratch: a place for files that are not kept.

    Raises:
        UserError: if a text cannot be had or read, changes meanwhile, or a split of it has fewer
            than two tokens.
    """
    texts = source.texts(scratch)
    if missing := [split for split in SPLITS if split not in texts]:
        raise TypeError(f"texts() gave no {' and no '.join(missing)}")
    vocabulary, unknown = _vocabulary(source, texts)
    encoded = {
        split: _encode(source.pieces(text), vocabulary, ids_file(directory, split))
        for split, text in texts.items()
    }
    if source.checksum() != checksum:
        raise UserError(f"{source.place('train')}: changed while it was read", "run again")
    _check_lengths(source, encoded)
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
        "unk": _unk_tokens(vocabulary, counts),
        "warnings": warnings,
    }
    write_json(directory / "corpus.json", content)


def _vocabulary(
    source: CorpusSource, texts: Mapping[Split, TextPart]
) -> tuple[Vocabulary, dict[Split, Counter[str]]]:
    """Returns the vocabulary, and for valid and test the symbols that became `<unk>` in it."""
    vocabulary = source.vocabulary(texts)
    unknown: dict[Split, Counter[str]] = {
        split: unknown_symbols(vocabulary, source.pieces(text))
        for split, text in texts.items()
        if split != "train"
    }
    return vocabulary.with_unknown() if any(unknown.values()) else vocabulary, unknown


def _unk_tokens(vocabulary: Vocabulary, counts: Counts) -> dict[Split, int]:
    """Counts the tokens of each split that are `<unk>`; empty for a vocabulary without it."""
    number = vocabulary.index.get(UNKNOWN)
    return {} if number is None else {split: int(n[number]) for split, n in counts.items()}


def unknown_symbols(vocabulary: Vocabulary, pieces: Iterable[str]) -> Counter[str]:
    """Counts the symbols of a text that `vocabulary` lacks."""
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


def _check_lengths(source: CorpusSource, encoded: Mapping[Split, EncodedSplit]) -> None:
    for split, part in encoded.items():
        if part.tokens < 2:
            raise UserError(
                f"{source.place(split)}: {part.tokens} tokens in the {split} split, 2 are needed "
                "to predict one from another",
                "give a longer text, or valid and test files",
            )


def _unknown_warnings(
    unknown: Mapping[Split, Counter[str]], vocabulary: Vocabulary, counts: Counts
) -> list[str]:
    """Warns of symbols that are scored as `<unk>` instead of themselves."""
    trained = _unk_tokens(vocabulary, counts).get("train", 0)
    after = f"which train has {trained:,} times" if trained else "which is never trained"
    return [
        f"{split} has {symbols.total():,} tokens ({symbols.total() / counts[split].sum():.1%}, "
        f"{len(symbols):,} distinct, such as {next(iter(symbols))!r}) that the vocabulary lacks; "
        f"they became <unk>, {after}"
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
    """Returns the corpus of `config`, built under `$TXLBENCH_DATA` or the user's cache if need be.

    Args:
        from_file: what the user has instead of the file that a catalogue's corpus would fetch.

    Raises:
        UserError: if the text is missing, damaged, too short or not UTF-8 where it must be, or
            the place for prepared corpora cannot be written.
    """
    source = _source(config, from_file)
    with _faults_as_user_errors(config):
        checksum = _checksum(source)
        directory = _directory(source, checksum)
        if not directory.is_dir():
            create_directory(directory, partial(build, source, checksum))
    return open_corpus(directory, config.name)


def encode_text(
    config: CorpusConfig, vocabulary: Vocabulary, splits: Sequence[Split]
) -> tuple[str, NDArray[Any]]:
    """The checksum of a text of the user's, and the ids of some of its splits one after another.

    Raises:
        UserError: as `prepare`, and for a symbol that a vocabulary without `<unk>` lacks.
    """
    source = TextFile(config)
    with _faults_as_user_errors(config), tempfile.TemporaryDirectory() as scratch:
        checksum = source.checksum()
        texts = source.texts(Path(scratch))
        pieces = [
            vocabulary.encode_piece(piece).astype(vocabulary.dtype)
            for split in splits
            for piece in source.pieces(texts[split])
        ]
    return checksum, np.concatenate([np.zeros(0, vocabulary.dtype), *pieces])


def find_prepared(config: CorpusConfig) -> Corpus | None:
    """Returns the corpus of `config` if it is prepared already; writes and fetches nothing."""
    source = _source(config, None)
    with _faults_as_user_errors(config):
        own = config.path is not None
        checksum = own_checksum(config, remember=False) if own else _checksum(source)
        directory = _directory(source, checksum)
    return open_corpus(directory, config.name) if directory.is_dir() else None


def _source(config: CorpusConfig, from_file: Path | None) -> CorpusSource:
    if config.path is not None:
        if from_file is not None:
            raise UserError(
                f"--from-file {from_file}: '{config.name}' is a text already",
                "drop --from-file, which stands in for what a named corpus fetches",
            )
        return TextFile(config)
    entry = CORPORA[config.name]
    with naming_plugin(entry.target, entry.source):
        source = load_class(entry.target)(from_file)
        if not isinstance(source, CorpusSource):
            raise TypeError(f"not a subclass of {CorpusSource.__module__}.CatalogueSource")
    return source


def _directory(source: CorpusSource, checksum: str) -> Path:
    made_from = [SCHEMA, source.level, source.split_rule, checksum]
    return data_root() / f"{source.name}-{source.level}-{fingerprint(made_from, length=16)}"


def _checksum(source: CorpusSource) -> str:
    """The source's checksum, which names a directory; TypeError if a plug-in's is no text."""
    checksum = source.checksum()
    if not isinstance(checksum, str):
        raise TypeError(f"checksum() gave {checksum!r}, not a text")
    return checksum


@contextmanager
def _faults_as_user_errors(config: CorpusConfig) -> Iterator[None]:
    """Makes faults of the file system, and of a plug-in's corpus, one line."""
    entry = None if config.path is not None else CORPORA[config.name]
    target, plugin = (None, None) if entry is None else (entry.target, entry.source)
    with naming_plugin(target, plugin):
        try:
            yield
        except OSError as error:
            if plugin is not None and error.filename is None and error.errno != errno.ENOSPC:
                raise  # the plug-in's own, of a download for example
            remedy = "check the path and its permissions"
            if error.errno == errno.ENOSPC:
                remedy = "free some space, or set TXLBENCH_DATA to a place that has it"
            place = error.filename or data_root()
            raise UserError(f"{place}: {error.strerror or error}", remedy) from error
