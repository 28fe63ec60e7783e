"""A prepared corpus: memory-mapped token ids, vocabulary, and the facts about them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.config.catalogue import Level
from txlbench.config.section import Split
from txlbench.data.levels import load_vocabulary
from txlbench.data.vocabulary import Vocabulary
from txlbench.errors import UserError
from txlbench.files import read_json

SCHEMA = "txlbench.corpus/1"
"""Part of the prepared directory's name: raising it rebuilds every corpus."""


def ids_file(directory: Path, split: Split) -> Path:
    """Where the ids of a split lie: little-endian unsigned integers, nothing else."""
    return directory / f"{split}.ids"


@dataclass(frozen=True)
class Corpus:
    """A corpus on disk. Opening reads a small JSON file; ids are mapped when asked for.

    Attributes:
        name: as the experiment file calls it.
        directory: where it lies; its files never change.
        level: what a token is.
        checksum: SHA-256 of the source bytes.
        split_rule: how the splits came about.
        dtype: the type of the ids.
        tokens: tokens of each split.
        unigram: nats a token of each split, see `unigram_loss`.
        unknown: tokens of valid and test that train lacks.
        warnings: what the user should know, a sentence each.
    """

    name: str
    directory: Path
    level: Level
    checksum: str
    split_rule: str
    dtype: str
    tokens: Mapping[Split, int]
    unigram: Mapping[Split, float]
    unknown: Mapping[Split, int]
    warnings: tuple[str, ...]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return load_vocabulary(self.directory / "vocabulary.json")

    def ids(self, split: Split) -> NDArray[Any]:
        """The token ids of `split`, 1-D, memory-mapped read-only."""
        path = ids_file(self.directory, split)
        return np.memmap(path, dtype=self.dtype, mode="r", shape=(self.tokens[split],))

    def unigram_loss(self, split: Split) -> float:
        """Nats a token of `split` under the add-one-smoothed unigram model of train."""
        return self.unigram[split]

    def facts(self) -> dict[str, Any]:
        """What identifies and describes the corpus, as plain data without paths."""
        return {
            "name": self.name,
            "checksum": self.checksum,
            "level": self.level,
            "split_rule": self.split_rule,
            "vocabulary_size": len(self.vocabulary),
            "vocabulary": self.vocabulary.fingerprint,
            "tokens": dict(self.tokens),
            "unigram_loss": dict(self.unigram),
            "unknown": dict(self.unknown),
            "warnings": list(self.warnings),
        }


def open_corpus(directory: Path, name: str) -> Corpus:
    """The corpus prepared in `directory`; UserError if a file of it is missing or cut."""
    corpus = _read(directory, name)
    for split, tokens in corpus.tokens.items():
        path = ids_file(directory, split)
        expected = tokens * np.dtype(corpus.dtype).itemsize
        found = path.stat().st_size if path.is_file() else 0
        if found != expected:
            raise UserError(f"{path}: {found} bytes, {expected} expected", _remedy(directory))
    return corpus


def _read(directory: Path, name: str) -> Corpus:
    path = directory / "corpus.json"
    try:
        content = read_json(path)
        warnings = tuple(content.pop("warnings"))
        assert content.pop("schema") == SCHEMA, path
        return Corpus(name, directory, **content, warnings=warnings)
    except (OSError, UserError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: missing or damaged", _remedy(directory)) from error


def _remedy(directory: Path) -> str:
    return f"delete {directory} and run again"
