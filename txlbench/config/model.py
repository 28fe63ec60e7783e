"""The `model` section: size, encoding and regularisation.

How `cutoffs` and `div_val` divide a vocabulary into clusters.
"""

from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from txlbench.config.base import Section
from txlbench.config.catalogue import (
    ENCODINGS,
    LEARNED_POSITIONS,
    STATEFUL_ARCHITECTURES,
    EncodingEntry,
    load_class,
)
from txlbench.config.kinds import KINDS, KindEntry
from txlbench.config.plugins import naming_plugin, resolved_source, unknown
from txlbench.errors import UserError, suggestion

ATTENTION_KEYS = frozenset(
    {
        *("encoding", "n_head", "d_head", "d_inner", "dropatt", "clamp_len", "same_length"),
        *("untie_r", "pre_lnorm", "max_distance", "shaw_bias"),
        *("memory", "compress_rate", "sinks"),
    }
)
"""Keys that mean nothing to a recurrent kind, unless its entry says so, and are set to their
defaults there."""

ARCHITECTURE_KEYS = frozenset({"kind", "architecture", "config", "plugin"})
"""Keys that mean something to kind hf; others are set to their defaults there."""

ARCHITECTURE_SIZES = "txlbench.models.architectures.architecture:architecture_sizes"
"""The function that counts a model of kind hf; it loads transformers, and so is no import here."""


class ModelConfig(Section):
    """The shared core's size, encoding and regularisation (paper section 3, official flags).

    Attributes:
        encoding: how position enters attention: xl, shaw, rope, alibi, t5, kerple, fox, none,
            absolute (sinusoids), learned, or al-rfou (learned, added at every layer).
        n_layer: number of layers.
        n_head: attention heads of each layer.
        d_model: size of hidden states.
        dropout: dropout on embeddings, hidden states and the output of each sublayer.
        d_head: size of a head; default d_model // n_head.
        d_inner: width of the feed-forward layer; default 4 * d_model.
        d_embed: size of the embedding; default d_model, else a projection follows.
        dropatt: dropout on attention probabilities.
        clamp_len: distances beyond it count as clamp_len; null for no limit.
        same_length: every query sees exactly mem_len keys, itself included.
        untie_r: biases u and v of each layer's own, instead of one pair for all layers.
        pre_lnorm: layer norm before each block instead of after it.
        cutoffs: word ids at which the clusters of the adaptive embedding and softmax begin.
        div_val: each further cluster's embedding is smaller by this factor.
        tie_projs: for each cluster, whether softmax and embedding share their projection.
        max_distance: largest distance with an entry of its own in a learned table: `shaw` clips
            there (default: the largest met in training), the last bucket of `t5` begins there
            (default 128), `learned` and `al-rfou` have that many positions plus one (default
            tgt_len - 1). Unused otherwise.
        memory: what the mem_len states of each layer are: xl (its newest inputs), shift (its newest
            outputs: memory one layer up, ERNIE-Doc), compressive (half of them made of older ones),
            sinks (the first of the stream and the newest), or none, which is no recurrence.
        compress_rate: of compressive: states that one is made of.
        sinks: of sinks: how many of the first are kept.
        shaw_bias: adds the content and position biases of the released code, which the paper's
            definition of Shaw's encoding does not have (erratum E9).
        init_std, proj_init_std: standard deviations of initial weights and projections.
        kind: transformer, or a recurrent kind, for which the keys of attention mean nothing: lstm,
            qrnn, gla (gated linear attention) or gated-delta (Gated DeltaNet), the latter two with
            n_head, d_head and d_inner; or hf: an architecture of Hugging Face transformers, trained
            from scratch (extra hf).
        dropoute: dropout of whole words of the embedding, as in AWD-LSTM.
        dropouti, dropouth: of lstm and qrnn: dropout on the input and between layers; default
            dropout.
        wdrop: of lstm: dropout on the hidden-to-hidden weights.
        variational: dropout masks are shared by all tokens of a segment; always so in lstm, qrnn.
        architecture: of kind hf: a causal language model of transformers by its model type, as
            llama or mamba; the keys above but kind mean nothing to it.
        config: of kind hf: keys of the architecture's configuration, by its own names; what is
            left out has its default there. The vocabulary is the corpus's. Of a plug-in: whatever
            it reads there.
        plugin: SHA-256 of the plug-in's source that the kind or encoding is from, of both with a
            plus; filled in.
    """

    ADDED = MappingProxyType(
        {
            "architecture": None,
            "config": {},
            "plugin": None,
            "dropoute": 0.0,
            "dropouti": None,
            "dropouth": None,
            "wdrop": 0.0,
            "variational": False,
            "memory": "xl",
            "compress_rate": 3,
            "sinks": 4,
        }
    )

    kind: str = "transformer"
    encoding: str = "xl"
    n_layer: int = Field(4, ge=1)
    d_model: int = Field(128, ge=1)
    n_head: int = Field(4, ge=1)
    d_head: int | None = Field(None, ge=1)
    d_inner: int | None = Field(None, ge=1)
    d_embed: int | None = Field(None, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)
    dropatt: float = Field(0.0, ge=0, lt=1)
    clamp_len: int | None = Field(None, ge=0)
    same_length: bool = False
    untie_r: bool = False
    pre_lnorm: bool = False
    cutoffs: tuple[int, ...] = Field((), strict=False)
    div_val: int = Field(1, ge=1)
    tie_projs: tuple[bool, ...] | None = Field(None, strict=False)
    max_distance: int | None = Field(None, ge=0)
    shaw_bias: bool = False
    init_std: float = Field(0.02, gt=0)
    proj_init_std: float = Field(0.01, gt=0)
    dropoute: float = Field(0.0, ge=0, lt=1)
    dropouti: float | None = Field(None, ge=0, lt=1)
    dropouth: float | None = Field(None, ge=0, lt=1)
    wdrop: float = Field(0.0, ge=0, lt=1)
    variational: bool = False
    architecture: str | None = Field(None, pattern=r"^[a-z0-9][a-z0-9_-]*$")
    config: dict[str, Any] = Field(default_factory=dict)
    plugin: str | None = None
    memory: Literal["xl", "shift", "compressive", "sinks", "none"] = "xl"
    compress_rate: int = Field(3, ge=1)
    sinks: int = Field(4, ge=1)

    @field_validator("kind")
    @classmethod
    def _known_kind(cls, name: str) -> str:
        if name not in KINDS:
            raise unknown(f"kind '{name}'", suggestion(name, KINDS))
        return name

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, name: str) -> str:
        if name not in ENCODINGS:
            raise unknown(f"encoding '{name}'", suggestion(name, ENCODINGS))
        return name

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, given: Any) -> Any:
        """Fills the sizes that follow from others."""
        if not isinstance(given, dict):
            return given
        filled = dict(given)
        if filled.get("kind") == "hf":
            own = cls.model_fields.keys() - ARCHITECTURE_KEYS
            filled = {key: value for key, value in filled.items() if key not in own}
        entry = KINDS.get(str(filled.get("kind", "transformer")))
        if entry is not None and entry.recurrent:
            unused = ATTENTION_KEYS - entry.keys
            filled = {key: value for key, value in filled.items() if key not in unused}
        d_model, n_head = filled.get("d_model", 128), filled.get("n_head", 4)
        if isinstance(d_model, int) and isinstance(n_head, int) and n_head > 0:
            for key, value in {
                "d_head": max(1, d_model // n_head),
                "d_inner": 4 * d_model,
                "d_embed": d_model,
            }.items():
                if filled.get(key) is None:
                    filled[key] = value
        if filled.get("tie_projs") is None and isinstance(filled.get("cutoffs", ()), list | tuple):
            filled["tie_projs"] = [False] * (len(filled.get("cutoffs", ())) + 1)
        return filled

    @model_validator(mode="after")
    def _check(self) -> Self:
        if list(self.cutoffs) != sorted(set(self.cutoffs)) or any(c < 1 for c in self.cutoffs):
            raise ValueError(f"cutoffs {list(self.cutoffs)} must be positive and ascending")
        clusters = len(self.cutoffs) + 1
        if self.tie_projs is not None and len(self.tie_projs) != clusters:
            raise ValueError(
                f"tie_projs has {len(self.tie_projs)} entries, but {len(self.cutoffs)} cutoffs "
                f"make {clusters} clusters; give {clusters}"
            )
        if self.div_val > 1 and self.embed_size // self.div_val ** (clusters - 1) < 1:
            raise ValueError(
                f"div_val {self.div_val} leaves the last of {clusters} clusters no dimension of "
                f"d_embed {self.embed_size}; lower div_val or drop a cutoff"
            )
        if self.kind == "hf" and self.architecture is None:
            raise ValueError("kind hf needs model.architecture, for example llama")
        entries = (self.kind_entry, self.encoding_entry)
        sources = [each.source for each in entries if each is not None and each.source]
        source = resolved_source(f"model: {self.name}", "+".join(sources) or None, self.plugin)
        object.__setattr__(self, "plugin", source)  # a validator may complete what it validates
        if self.kind != "hf" and (self.architecture is not None or (self.config and not source)):
            raise ValueError(f"architecture and config go with kind hf, not {self.kind}")
        if self.memory != "compressive" and self.compress_rate != self.ADDED["compress_rate"]:
            raise ValueError(f"compress_rate goes with memory compressive, not {self.memory}")
        if self.memory != "sinks" and self.sinks != self.ADDED["sinks"]:
            raise ValueError(f"sinks goes with memory sinks, not {self.memory}")
        if self.clamp_len is not None and not self.clamps:
            raise ValueError(f"clamp_len: {self.name} has no distances to clamp; drop it")
        if self.kind_entry.encodes and self.encoding == "rope" and self.head_size < 2:
            raise ValueError("d_head 1: rope turns pairs of numbers; use at least 2")
        if self.wdrop and self.kind != "lstm":
            raise ValueError(f"wdrop goes with kind lstm, not {self.kind}")
        for name, entry in ENCODINGS.items():
            for option in entry.options:
                with naming_plugin(f"encoding {name}", entry.source):
                    given = getattr(self, option)
                if given and name != self.encoding:
                    raise ValueError(f"{option} goes with encoding {name}, not {self.encoding}")
        return self

    @property
    def head_size(self) -> int:
        assert self.d_head is not None
        return self.d_head

    @property
    def key_size(self) -> int:
        """Of gla and gated-delta: the size of a head's keys, half that of its values."""
        return max(1, self.head_size // 2)

    @property
    def inner_size(self) -> int:
        assert self.d_inner is not None
        return self.d_inner

    @property
    def embed_size(self) -> int:
        assert self.d_embed is not None
        return self.d_embed

    @property
    def input_dropout(self) -> float:
        """dropouti as resolved."""
        return self.dropout if self.dropouti is None else self.dropouti

    @property
    def hidden_dropout(self) -> float:
        """dropouth as resolved."""
        return self.dropout if self.dropouth is None else self.dropouth

    @property
    def is_recurrent(self) -> bool:
        """Whether a recurrent state is the memory or a part of it, as of lstm, qrnn and mamba."""
        return self.kind_entry.recurrent or self.architecture in STATEFUL_ARCHITECTURES

    @property
    def name(self) -> str:
        """What sets the model apart: its encoding, its architecture, or its kind."""
        if self.architecture is not None:
            return self.architecture
        if self.kind == "transformer":
            return self.encoding
        return f"{self.kind}-{self.encoding}" if self.kind_entry.encodes else self.kind

    @property
    def depth(self) -> int:
        """The number of layers; of kind hf as its architecture has it, which loads transformers."""
        if self.kind != "hf":
            return self.n_layer
        layers: int = load_class(ARCHITECTURE_SIZES)(self, 1).n_layer
        return layers

    @property
    def kind_entry(self) -> KindEntry:
        """What is known of the kind."""
        return KINDS[self.kind]

    @property
    def encoding_entry(self) -> EncodingEntry | None:
        """The catalogue's entry of the encoding; None for kinds that have none."""
        return ENCODINGS[self.encoding] if self.kind_entry.encodes else None

    @property
    def span_sinks(self) -> int:
        """The states of a memory that are the first of the stream."""
        return self.sinks if self.memory == "sinks" else 0

    @property
    def remembers_inputs(self) -> bool:
        """Whether a token is remembered as its segment saw it, until it is dropped.

        Then it does not matter where segments are cut, as long as memory covers them.
        """
        exact = self.memory not in ("shift", "compressive")
        return exact and self.kind_entry.remembers_inputs

    @property
    def clamps(self) -> bool:
        """Whether there are distances that `clamp_len` can clamp."""
        return self.kind != "hf" and (self.encoding_entry is None or self.encoding_entry.clamps)

    @property
    def learned_positions(self) -> int | None:
        """How many positions the model has learned, the longest segment it reads; None for any."""
        if self.architecture in LEARNED_POSITIONS:
            key, default = LEARNED_POSITIONS[self.architecture]
            positions: int = self.config.get(key, default)
            return positions
        entry = self.encoding_entry
        if entry is None or not entry.learned_positions:
            return None
        return (self.max_distance or 0) + 1

    @property
    def has_coherent_memory(self) -> bool:
        """Whether what is remembered means the same in the next segment."""
        if self.kind == "hf":
            return self.architecture not in LEARNED_POSITIONS
        return self.encoding_entry is None or self.encoding_entry.relative


@dataclass(frozen=True)
class Cluster:
    """The token ids first, ..., end - 1, embedded in `width` dimensions."""

    first: int
    end: int
    width: int

    @property
    def size(self) -> int:
        return self.end - self.first


def clusters_of(config: ModelConfig, vocabulary_size: int) -> list[Cluster]:
    """The head cluster, then the tails, each narrower by `div_val` than the one before.

    Raises:
        UserError: if a cutoff lies beyond the vocabulary.
    """
    if config.cutoffs and config.cutoffs[-1] >= vocabulary_size:
        raise UserError(
            f"model.cutoffs: {list(config.cutoffs)} reach beyond the vocabulary of "
            f"{vocabulary_size}",
            f"keep every cutoff under {vocabulary_size}",
        )
    edges = (0, *config.cutoffs, vocabulary_size)
    return [
        Cluster(first, end, config.embed_size // config.div_val**index)
        for index, (first, end) in enumerate(pairwise(edges))
    ]


def softmax_projections(config: ModelConfig) -> list[bool]:
    """For each cluster, whether the softmax has a projection of its own (official flags).

    There is none where embedding and model have one size and `div_val` is 1; a tied one is the
    embedding's.
    """
    assert config.tie_projs is not None
    needed = config.div_val > 1 or config.embed_size != config.d_model
    return [needed and not tied for tied in config.tie_projs]
