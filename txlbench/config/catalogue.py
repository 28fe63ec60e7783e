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
        "al-rfou": "txlbench.models.positions.absolute:AlRfouEncoding",
    },
)

RELATIVE_ENCODINGS = {"xl", "shaw"}
"""Encodings that see distances only. The others restart their positions at every segment, so
that memory is incoherent with them (paper, the equation before section 3.3)."""


def register_encoding(name: str, target: str, *, relative: bool) -> None:
    """Makes somebody's own encoding known by `name`; nothing is imported.

    Args:
        target: `package.module:Class`, a subclass of `models.positions.encoding.Encoding`.
        relative: whether it sees distances only, so that what is remembered means the same in the
            next segment. Configurations ask this long before the class is loaded.
    """
    ENCODINGS.register(name, target)
    if relative:
        RELATIVE_ENCODINGS.add(name)


@dataclass(frozen=True)
class CorpusFacts:
    """What is known of a named corpus without reading it.

    Attributes:
        level: what a token is.
        vocabulary_size: number of token types, None where only the prepared corpus knows it.
        train_tokens: tokens of the training split, None where only the prepared corpus knows it.
        split_rule: how the splits come about; part of a run's identity.
        valid_tokens, test_tokens: as train_tokens.
        note: what sets this corpus apart, half a sentence.
        period: tokens after which the kind of token recurs; samples of tokens at even steps must
            not keep time with it. 1 for texts.
    """

    level: Level
    vocabulary_size: int | None
    train_tokens: int | None
    split_rule: str
    valid_tokens: int | None = None
    test_tokens: int | None = None
    note: str = ""
    period: int = 1

    @property
    def tokens(self) -> dict[str, int | None]:
        """Tokens by split."""
        return {"train": self.train_tokens, "valid": self.valid_tokens, "test": self.test_tokens}


# Vocabulary sizes and counts are the published ones. The parameter counts of the official models
# fit these vocabularies exactly.
CORPORA: dict[str, CorpusFacts] = {
    "enwiki-sample": CorpusFacts(
        "byte", 256, 5_480_771, "90/5/5", 304_487, 304_488, "6 MB of Wikipedia XML, no download"
    ),
    "enwiki-words": CorpusFacts(
        level="word",
        vocabulary_size=12_742,
        train_tokens=470_941,
        split_rule="90/5/5 by articles",
        valid_tokens=23_302,
        test_tokens=28_681,
        note="the same articles as words, no download",
    ),
    "wt103": CorpusFacts(
        "word", 267_735, 103_227_021, "published", 217_646, 245_569, "WikiText-103"
    ),
    "wt2": CorpusFacts("word", 33_278, 2_088_628, "published", 217_646, 245_569, "WikiText-2"),
    "enwik8": CorpusFacts(
        "byte", 256, 90_000_000, "90M/5M/5M", 5_000_000, 5_000_000, "all bytes of Wikipedia XML"
    ),
    "enwik8-official": CorpusFacts(
        "byte", 204, None, "90M/5M/5M, no newlines", note="enwik8 as the released code reads it"
    ),
    "text8": CorpusFacts(
        "char", 27, None, "90M/5M/5M, stripped", note="Wikipedia in letters and spaces"
    ),
    "lm1b": CorpusFacts(
        "word", 793_470, None, "heldout-00000, shuffled", note="one <S> between sentences"
    ),
    "lm1b-tf": CorpusFacts(
        "word", 793_470, None, "heldout-00000, shuffled, <S> <S>", note="two <S> between sentences"
    ),
    "ptb": CorpusFacts("word", 10_000, 929_589, "published", 73_760, 82_430, "Penn Treebank"),
    "planted": CorpusFacts(
        level="char",
        vocabulary_size=44,
        train_tokens=4_000_000,
        split_rule="computed",
        valid_tokens=200_000,
        test_tokens=200_000,
        note="its RECL is known exactly, no download",
        period=4,
    ),
}

CORPUS_LOADERS = Registry(
    "corpus",
    {
        "enwiki-sample": "txlbench.data.wikipedia:EnwikiSample",
        "enwiki-words": "txlbench.data.wikipedia_words:EnwikiWords",
        "wt103": "txlbench.data.published:WikiText103",
        "wt2": "txlbench.data.published:WikiText2",
        "enwik8": "txlbench.data.wikipedia:Enwik8",
        "enwik8-official": "txlbench.data.wikipedia:OfficialEnwik8",
        "text8": "txlbench.data.wikipedia:Text8",
        "lm1b": "txlbench.data.lm1b:BillionWords",
        "lm1b-tf": "txlbench.data.lm1b:BillionWordsTensorFlow",
        "ptb": "txlbench.data.published:PennTreebank",
        "planted": "txlbench.data.planted:Planted",
    },
)
"""Corpora that the data package can prepare by name; a corpus with a `path` needs no entry."""

UNITS: dict[Level, str] = {"byte": "bpc", "char": "bpc", "word": "ppl"}
"""The unit in which the losses of a level are shown: bits per character, or perplexity."""
