"""The names an experiment file may use, and what is known of them before anything is loaded."""

from dataclasses import dataclass
from typing import Literal

from txlbench.registry import Registry

Level = Literal["byte", "char", "word"]

ENCODINGS = Registry(
    "encoding",
    {
        "xl": "txlbench.models.positions.xl:XLEncoding",
        "shaw": "txlbench.models.positions.shaw:ShawEncoding",
        "absolute": "txlbench.models.positions.absolute:AbsoluteEncoding",
        "al-rfou": "txlbench.models.positions.al_rfou:AlRfouEncoding",
    },
)

RELATIVE_ENCODINGS = frozenset({"xl", "shaw"})
"""Encodings that see distances only. The others restart their positions at every segment, so
that memory is incoherent with them (paper, the equation before section 3.3)."""


@dataclass(frozen=True)
class CorpusFacts:
    """What is known of a named corpus without reading it.

    Attributes:
        level: what a token is.
        vocabulary_size: number of token types, None where only the prepared corpus knows it.
        train_tokens: tokens of the training split, None where only the prepared corpus knows it.
        split_rule: how the splits come about; part of a run's identity.
    """

    level: Level
    vocabulary_size: int | None
    train_tokens: int | None
    split_rule: str


CORPORA: dict[str, CorpusFacts] = {
    "enwiki-sample": CorpusFacts("byte", 256, 5_480_771, "90/5/5"),
    # The published vocabulary: the parameter count of the base model fits it exactly.
    "wt103": CorpusFacts("word", 267_735, 103_227_021, "published"),
}

CORPUS_LOADERS = Registry(
    "corpus",
    {
        "enwiki-sample": "txlbench.data.enwiki_sample:EnwikiSample",
    },
)
"""Corpora that the data package can prepare by name; a corpus with a `path` needs no entry."""

UNITS: dict[Level, str] = {"byte": "bpc", "char": "bpc", "word": "ppl"}
"""The unit in which the losses of a level are shown: bits per character, or perplexity."""
