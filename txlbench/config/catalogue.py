"""The names an experiment file may use, and what is known of them before anything is loaded."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from txlbench.config.plugins import Catalogue
from txlbench.errors import UserError

if TYPE_CHECKING:
    from txlbench.config.model import ModelConfig

Level = Literal["byte", "char", "word"]


def load_class(target: str | type) -> Any:
    """Imports `package.module:Class`, as entries name what they stand for; a class is itself."""
    if isinstance(target, type):
        return target
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


def _check_choice(key: str, value: object, choices: object) -> None:
    """UserError if `value` is not of the literal type `choices`."""
    known = get_args(choices)
    if value not in known:
        raise UserError(f"{key}: {value!r} found", f"use {', '.join(known)}")


Exactness = Literal["distance", "visible", "content"]
"""What an encoding's part of the score of query i and key j is a function of.

- distance: of i - j alone. Segments with a memory that covers equal one pass, and at one attention
  length it does not matter where segments are cut.
- visible: of the keys that the segment shows, as absolute positions are, which count from its
  start. Contexts read in one pass equal contexts alone, segments do not equal one pass, and memory
  is incoherent (paper, the equation before section 3.3).
- content: of the tokens between j and i too. Exact wherever a distance is, but there is no distance
  to clamp, and nothing to tabulate.

`txlbench check` tests each claim.
"""


@dataclass(frozen=True)
class EncodingEntry:
    """A position encoding: its class, and what is known of it before the class is loaded.

    Attributes:
        target: a subclass of `models.positions.encoding.Encoding`, as `package.module:Class`.
        exactness: what its part of the scores is a function of; see `Exactness`.
        parameters: the weights it owns, over all layers.
        position_products: multiplications that position scores take for one token in one layer
            beside that many keys.
        rows: scores take a product with a row for each distance.
        clamps: distances can be clamped (`clamp_len`).
        default_max_distance: `model.max_distance` by tgt_len and mem_len, for a learned table;
            None where the encoding has no such table.
        learned_positions: it has learned max_distance + 1 positions, so that no longer segment
            can be read.
        options: boolean keys of the `model` section that go with this encoding alone.
        source: SHA-256 of the plug-in that registered it.
    """

    target: str | type
    exactness: Exactness = "distance"
    parameters: Callable[["ModelConfig"], int] = lambda _: 0
    position_products: Callable[["ModelConfig", float], float] = lambda _, __: 0.0
    rows: bool = False
    clamps: bool = True
    default_max_distance: Callable[[int, int], int] | None = None
    learned_positions: bool = False
    options: tuple[str, ...] = ()
    source: str | None = None

    def __post_init__(self) -> None:
        _check_choice("exactness", self.exactness, Exactness)

    @property
    def relative(self) -> bool:
        """Whether memory means the same in the next segment."""
        return self.exactness != "visible"


def _xl_parameters(config: "ModelConfig") -> int:
    """W_kR of each layer; u and v of all layers, or of each with `untie_r`."""
    width, owners = config.n_head * config.head_size, config.n_layer if config.untie_r else 1
    return config.n_layer * config.d_model * width + 2 * owners * width


def _shaw_parameters(config: "ModelConfig") -> int:
    """A row for each layer, distance and head; with `shaw_bias` the biases of both."""
    width, entries = config.n_head * config.head_size, (config.max_distance or 0) + 1
    bias = width + entries * config.n_head if config.shaw_bias else 0
    return config.n_layer * (entries * width + bias)


def _al_rfou_parameters(config: "ModelConfig") -> int:
    """A row for each layer and position."""
    return config.n_layer * ((config.max_distance or 0) + 1) * config.d_model


def _rotation_products(config: "ModelConfig", _: float) -> float:
    """Two products for each number of a query and of a key, which is turned once."""
    return 4.0 * config.n_head * config.head_size


def row_products(config: "ModelConfig", keys: float) -> float:
    """Products of each query with a row of every distance."""
    return keys * config.n_head * config.head_size


T5_BUCKETS = 32
_POSITIONS = "txlbench.models.positions."
_ENCODINGS = {
    "xl": EncodingEntry(
        f"{_POSITIONS}xl:XLEncoding",
        parameters=_xl_parameters,
        position_products=row_products,
        rows=True,
    ),
    "shaw": EncodingEntry(
        f"{_POSITIONS}shaw:ShawEncoding",
        rows=True,
        parameters=_shaw_parameters,
        position_products=row_products,
        default_max_distance=lambda tgt_len, mem_len: tgt_len - 1 + mem_len,
        options=("shaw_bias",),
    ),
    "alibi": EncodingEntry(f"{_POSITIONS}alibi:AlibiEncoding"),
    "t5": EncodingEntry(
        f"{_POSITIONS}biases:T5Encoding",
        parameters=lambda config: config.n_head * T5_BUCKETS,
        default_max_distance=lambda *_: 128,
    ),
    "kerple": EncodingEntry(
        f"{_POSITIONS}biases:KerpleEncoding",
        parameters=lambda config: 2 * config.n_layer * config.n_head,
    ),
    "fox": EncodingEntry(
        f"{_POSITIONS}fox:FoxEncoding",
        "content",
        parameters=lambda config: config.n_layer * (config.d_model + 1) * config.n_head,
        position_products=lambda config, _: config.d_model * config.n_head,
        clamps=False,
    ),
    "rope": EncodingEntry(
        f"{_POSITIONS}rope:RopeEncoding", position_products=_rotation_products, clamps=False
    ),
    "none": EncodingEntry(f"{_POSITIONS}encoding:Encoding", clamps=False),
    "absolute": EncodingEntry(f"{_POSITIONS}absolute:AbsoluteEncoding", "visible"),
    "learned": EncodingEntry(
        f"{_POSITIONS}absolute:LearnedEncoding",
        "visible",
        parameters=lambda config: ((config.max_distance or 0) + 1) * config.d_model,
        default_max_distance=lambda tgt_len, _: tgt_len - 1,
        learned_positions=True,
        clamps=False,
    ),
    "al-rfou": EncodingEntry(
        f"{_POSITIONS}absolute:AlRfouEncoding",
        "visible",
        parameters=_al_rfou_parameters,
        default_max_distance=lambda tgt_len, _: tgt_len - 1,
        learned_positions=True,
    ),
}


ENCODINGS: Catalogue[EncodingEntry] = Catalogue("txlbench.encodings", "encoding", _ENCODINGS)


def register_encoding(name: str, entry: EncodingEntry) -> None:
    """Makes somebody's own encoding known by `name`; its module is not imported.

    Raises:
        UserError: if the name stands for another encoding.
    """
    ENCODINGS.register(name, entry)


STATEFUL_ARCHITECTURES = frozenset(
    {
        *("bailing_hybrid", "bamba", "deepseek_v4", "falcon_h1", "falcon_mamba", "glm5_next"),
        *("granitemoehybrid", "jamba", "kimi_linear", "lara_mini", "lfm2", "lfm2_moe", "mamba"),
        *("mamba2", "minimax", "nemotron_h", "olmo_hybrid", "qwen3_5", "qwen3_5_moe"),
        *("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "qwen4_exp", "qwen4_exp_text"),
        *("recurrent_gemma", "rwkv", "xlstm", "zamba", "zamba2", "zaya"),
    }
)
"""Architectures of transformers that have a recurrent state, in all layers or in some (hybrids):
they have no attention length to choose."""

LEARNED_POSITIONS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(("biogpt", "ctrl"), ("max_position_embeddings", 1024)),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), ("n_positions", 1024)),
    **dict.fromkeys(("gpt_neo", "opt", "xglm"), ("max_position_embeddings", 2048)),
    "openai-gpt": ("n_positions", 512),
}
"""Architectures of transformers with absolute positions: the key of `model.config` that says how
many there are, and its default. No longer segment can be read, nor memory be carried."""


@dataclass(frozen=True)
class CorpusEntry:
    """A named corpus: where its class is, and what is known of it without reading it.

    Attributes:
        target: a subclass of `data.source.CatalogueSource`, as `package.module:Class`.
        level: what a token is.
        split_rule: how the splits come about; part of a run's identity.
        vocabulary_size: number of token types, None where only the prepared corpus knows it.
        train_tokens, valid_tokens, test_tokens: tokens of the splits, None likewise.
        note: what sets this corpus apart, half a sentence.
        period: tokens after which the kind of token recurs; samples of tokens at even steps must
            not keep time with it. 1 for texts.
        source: SHA-256 of the plug-in that registered it.
    """

    target: str | type
    level: Level
    split_rule: str
    vocabulary_size: int | None
    train_tokens: int | None = None
    valid_tokens: int | None = None
    test_tokens: int | None = None
    note: str = ""
    period: int = 1
    source: str | None = None

    def __post_init__(self) -> None:
        _check_choice("level", self.level, Level)

    @property
    def tokens(self) -> dict[str, int | None]:
        """Tokens by split."""
        return {"train": self.train_tokens, "valid": self.valid_tokens, "test": self.test_tokens}


# Vocabulary sizes and counts are the published ones. The parameter counts of the official models
# fit these vocabularies exactly.
_PUBLISHED, _WIKIPEDIA, _LM1B = (f"txlbench.data.{m}:" for m in ("published", "wikipedia", "lm1b"))
# fmt: off
_CORPORA = {
    "enwiki-sample": CorpusEntry(
        f"{_WIKIPEDIA}EnwikiSample", "byte", "90/5/5", 256, 5_480_771, 304_487, 304_488,
        "6 MB of Wikipedia XML, no download"),
    "enwiki-shuffled": CorpusEntry(
        f"{_WIKIPEDIA}EnwikiShuffled", "byte", "90/5/5, sentences shuffled", 256,
        5_480_771, 304_487, 304_488, "the same, its sentences in random order"),
    "enwiki-words": CorpusEntry(
        "txlbench.data.wikipedia_words:EnwikiWords", "word",
        "90/5/5 by articles, markup removed by gensim", 12_733, 467_996, 22_815, 29_277,
        "the same articles as words, no download"),
    "wt103": CorpusEntry(
        f"{_PUBLISHED}WikiText103", "word", "published", 267_735, 103_227_021, 217_646, 245_569,
        "WikiText-103"),
    "wt2": CorpusEntry(
        f"{_PUBLISHED}WikiText2", "word", "published", 33_278, 2_088_628, 217_646, 245_569,
        "WikiText-2"),
    "enwik8": CorpusEntry(
        f"{_WIKIPEDIA}Enwik8", "byte", "90M/5M/5M", 256, 90_000_000, 5_000_000, 5_000_000,
        "all bytes of Wikipedia XML"),
    "enwik8-official": CorpusEntry(
        f"{_WIKIPEDIA}OfficialEnwik8", "byte", "90M/5M/5M, no newlines", 204,
        note="enwik8 as the released code reads it"),
    "text8": CorpusEntry(
        f"{_WIKIPEDIA}Text8", "char", "90M/5M/5M, stripped", 27,
        note="Wikipedia in letters and spaces"),
    "lm1b": CorpusEntry(
        f"{_LM1B}BillionWords", "word", "heldout-00000, shuffled", 793_470,
        note="one <S> between sentences"),
    "lm1b-tf": CorpusEntry(
        f"{_LM1B}BillionWordsTensorFlow", "word", "heldout-00000, shuffled, <S> <S>", 793_470,
        note="two <S> between sentences"),
    "ptb": CorpusEntry(
        f"{_PUBLISHED}PennTreebank", "word", "published", 10_000, 929_589, 73_760, 82_430,
        "Penn Treebank"),
    "planted": CorpusEntry(
        "txlbench.data.planted:Planted", "char", "computed", 44, 4_000_000, 200_000, 200_000,
        "its RECL is known exactly, no download", period=4),
    "copies": CorpusEntry(
        "txlbench.data.copies:Copies", "char", "computed", 64, 4_000_000, 100_000, 100_000,
        "random texts, each four times in a row, no download"),
}
# fmt: on
CORPORA: Catalogue[CorpusEntry] = Catalogue("txlbench.corpora", "corpus", _CORPORA)
"""Corpora with a name; a corpus with a `path` needs no entry."""


def register_corpus(name: str, entry: CorpusEntry) -> None:
    """Makes somebody's own corpus known by `name`; see `register_encoding`."""
    CORPORA.register(name, entry)


UNITS: dict[Level, str] = {"byte": "bpc", "char": "bpc", "word": "ppl"}
"""The unit in which the losses of a level are shown: bits per character, or perplexity."""
