"""A prepared corpus: memory-mapped token ids, vocabulary, and the facts about them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from txlbench.config.base import Part, Split
from txlbench.config.catalogue import Level
from txlbench.data.download import remembered
from txlbench.data.vocabulary import Vocabulary, load_vocabulary
from txlbench.errors import UserError
from txlbench.files import read_json
from txlbench.records.schema import TrainedCorpus

SCHEMA = "txlbench.corpus/2"
"""Part of the prepared directory's name: raising it rebuilds every corpus."""


def ids_file(directory: Path, split: Split) -> Path:
    """Returns where the ids of a split lie: little-endian unsigned integers, nothing else."""
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
        unigram: nats a token of each split under the add-one-smoothed unigram model of train.
        unknown: tokens of valid and test that the vocabulary lacks, so that they became `<unk>`.
        unk: tokens of each split that are `<unk>`, those of the text included; empty for a
            vocabulary without it.
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
    unk: Mapping[Split, int]
    warnings: tuple[str, ...]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return load_vocabulary(self.directory / "vocabulary.json")

    def count(self, part: Part) -> int:
        """Returns the number of tokens of a split, or of all."""
        return sum(self.tokens.values()) if part == "all" else self.tokens[part]

    def ids(self, split: Part) -> NDArray[Any]:
        """Returns the token ids of `split`, 1-D, memory-mapped read-only; `all` in memory.

        The file is scanned once, for ids without a symbol, with which embeddings would be read
        beyond their end, and again only after a change.

        Raises:
            UserError: if there is such an id.
        """
        if split == "all":
            return np.concatenate([self.ids(each) for each in get_args(Split)])
        path, size = ids_file(self.directory, split), len(self.vocabulary)
        ids: NDArray[Any] = np.memmap(path, self.dtype, mode="r", shape=(self.tokens[split],))
        if np.iinfo(ids.dtype).max < size:
            return ids
        largest = int(remembered(path, "largest", lambda _: int(ids.max())))
        if largest >= size:
            raise UserError(f"{path}: id {largest} of {size} symbols", _remedy(self.directory))
        return ids

    def text(self, split: Part) -> bytes:
        """Returns the text of `split`: the source's bytes at byte level, else UTF-8.

        Characters and words are what the ids stand for, joined: CRLF is LF, words stand between
        single spaces, and what the vocabulary lacks is `<unk>`.
        """
        symbols, ids = self.vocabulary.symbols, self.ids(split)
        if self.level == "byte":
            return np.array([ord(symbol) for symbol in symbols], dtype=np.uint8)[ids].tobytes()
        return self.vocabulary.decode(ids).encode()

    @property
    def unk_share(self) -> dict[Split, float]:
        """The share of `<unk>` among the tokens of each split."""
        return {split: count / self.tokens[split] for split, count in self.unk.items()}

    def facts(self) -> TrainedCorpus:
        """Returns what identifies and describes the corpus, without paths."""
        return TrainedCorpus(
            name=self.name,
            checksum=self.checksum,
            level=self.level,
            split_rule=self.split_rule,
            vocabulary_size=len(self.vocabulary),
            vocabulary=self.vocabulary.fingerprint,
            tokens=dict(self.tokens),
            unigram_loss=dict(self.unigram),
            unknown=dict(self.unknown),
            unk=dict(self.unk),
            warnings=tuple(self.warnings),
        )


def open_corpus(directory: Path, name: str) -> Corpus:
    """Opens the corpus prepared in `directory`; UserError if a file of it is missing or cut."""
    corpus = _read(directory, name)
    for split, tokens in corpus.tokens.items():
        path = ids_file(directory, split)
        expected = tokens * np.dtype(corpus.dtype).itemsize
        found = path.stat().st_size if path.is_file() else 0
        if found != expected:
            raise UserError(f"{path}: {found} bytes, {expected} expected", _remedy(directory))
    return corpus


class _Content(BaseModel):
    """`corpus.json`."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    schema_: Literal["txlbench.corpus/2"] = Field(alias="schema")
    level: Level
    checksum: str
    split_rule: str
    dtype: Literal["|u1", "<u2", "<u4", "<u8"]
    tokens: dict[Split, Annotated[int, Field(ge=2, lt=2**48)]] = Field(min_length=3)
    unigram: dict[Split, float]
    unknown: dict[Split, int]
    unk: dict[Split, int]
    warnings: list[str]


def _read(directory: Path, name: str) -> Corpus:
    path = directory / "corpus.json"
    try:
        content = _Content.model_validate(read_json(path)).model_dump(exclude={"schema_"})
    except (OSError, UserError, ValidationError) as error:
        raise UserError(f"{path}: missing or damaged", _remedy(directory)) from error
    return Corpus(name, directory, **{**content, "warnings": tuple(content["warnings"])})


def _remedy(directory: Path) -> str:
    return f"delete {directory} and run again"
