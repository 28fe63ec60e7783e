"""The configuration of one run: what is trained, how, and how it is evaluated.

Keys keep the names of the paper and of its released code. Every model is frozen and validates
strictly (a string is not a number), and unknown keys are refused. `loading` turns the errors into
one line with file, line number and remedy.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from txlbench.config.catalogue import CORPORA, ENCODINGS, RELATIVE_ENCODINGS, UNITS, Level
from txlbench.registry import suggestion

Split = Literal["train", "valid", "test"]
Precision = Literal["auto", "fp32", "bf16"]


class Section(BaseModel):
    """What all parts of a configuration have in common.

    `UNHASHED` names the fields that do not change what is trained. `ADDED` maps a field that
    was added after runs had been published to the value that keeps the old behaviour: with that
    value it is left out of the identity, so published ids stay.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    UNHASHED: ClassVar[frozenset[str]] = frozenset()
    ADDED: ClassVar[Mapping[str, Any]] = MappingProxyType({})


class CorpusConfig(Section):
    """A corpus of the catalogue by name, or any text by `path`.

    Attributes:
        name: the catalogue's name, or any name for one's own text.
        path: the text, relative to the working directory; alone it is split 90/5/5.
        valid, test: further files; both or neither.
        level: what a token is; a corpus of the catalogue knows its own.
    """

    UNHASHED = frozenset({"path", "valid", "test"})

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    path: str | None = None
    valid: str | None = None
    test: str | None = None
    level: Level | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.path is None:
            if self.valid or self.test:
                raise ValueError("valid and test need a path to the training text")
            if self.name not in CORPORA:
                remedy = suggestion(self.name, CORPORA)
                raise ValueError(f"unknown corpus '{self.name}'; {remedy}; or give its path")
            known = CORPORA[self.name].level
            if self.level not in (None, known):
                raise ValueError(f"level of {self.name} is {known}, not {self.level}")
        elif self.name in CORPORA:
            raise ValueError(f"name '{self.name}' belongs to the catalogue; choose another name")
        elif (self.valid is None) != (self.test is None):
            raise ValueError("give both valid and test, or neither (then the text is split 90/5/5)")
        return self

    @property
    def resolved_level(self) -> Level:
        """The level given, else the catalogue's, else bytes."""
        return self.level or (CORPORA[self.name].level if self.path is None else "byte")

    @property
    def unit(self) -> str:
        """The unit in which losses are shown: bpc or ppl."""
        return UNITS[self.resolved_level]

    @property
    def split_rule(self) -> str:
        """How the splits come about: part of a run's identity."""
        if self.path is None:
            return CORPORA[self.name].split_rule
        return "90/5/5" if self.valid is None else "files"


RECURRENT_KINDS = frozenset({"lstm", "qrnn"})
"""Models whose hidden state is their memory."""

ATTENTION_KEYS = frozenset(
    {
        *("encoding", "n_head", "d_head", "d_inner", "dropatt", "clamp_len", "same_length"),
        *("untie_r", "pre_lnorm", "max_distance", "shaw_bias"),
    }
)
"""Keys that mean nothing to a recurrent kind and are set to their defaults there."""


class ModelConfig(Section):
    """The shared core's size, encoding and regularisation (paper section 3, official flags).

    Attributes:
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
            there (default: the largest met in training), `al-rfou` has that many positions plus
            one (default tgt_len - 1). Unused otherwise.
        shaw_bias: adds the content and position biases of the released code, which the paper's
            definition of Shaw's encoding does not have (erratum E9).
        init_std, proj_init_std: standard deviations of initial weights and projections.
        kind: transformer, or lstm or qrnn, for which the keys of attention mean nothing.
        dropoute: dropout of whole words of the embedding, as in AWD-LSTM.
        dropouti, dropouth: of lstm and qrnn: dropout on the input and between layers; default
            dropout.
        wdrop: of lstm: dropout on the hidden-to-hidden weights.
        variational: dropout masks are shared by all tokens of a segment; always so in lstm, qrnn.
    """

    ADDED = MappingProxyType(
        {
            "dropoute": 0.0,
            "dropouti": None,
            "dropouth": None,
            "wdrop": 0.0,
            "variational": False,
        }
    )

    kind: Literal["transformer", "lstm", "qrnn"] = "transformer"
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

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, name: str) -> str:
        if name not in ENCODINGS:
            raise ValueError(f"unknown encoding '{name}'; {suggestion(name, ENCODINGS.names())}")
        return name

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, given: Any) -> Any:
        """Fills the sizes that follow from others."""
        if not isinstance(given, dict):
            return given
        filled = dict(given)
        if filled.get("kind") in RECURRENT_KINDS:
            filled = {key: value for key, value in filled.items() if key not in ATTENTION_KEYS}
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
        if self.wdrop and self.kind != "lstm":
            raise ValueError(f"wdrop goes with kind lstm, not {self.kind}")
        if self.shaw_bias and self.encoding != "shaw":
            raise ValueError(f"shaw_bias goes with encoding shaw, not {self.encoding}")
        return self

    @property
    def head_size(self) -> int:
        assert self.d_head is not None
        return self.d_head

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
        """Whether the hidden state is the memory, as of lstm and qrnn."""
        return self.kind in RECURRENT_KINDS

    @property
    def name(self) -> str:
        """What sets the model apart: its encoding, or its kind."""
        return self.kind if self.is_recurrent else self.encoding

    @property
    def is_relative(self) -> bool:
        """Whether the encoding sees distances only, so that memory is coherent."""
        return not self.is_recurrent and self.encoding in RELATIVE_ENCODINGS


class TrainConfig(Section):
    """Segments, memory, objective and optimisation (official flags; paper section 3.2).

    Attributes:
        tgt_len: tokens predicted in a segment.
        mem_len: cached states of earlier tokens; default tgt_len; 0 without recurrence.
        recurrence: memory is carried from segment to segment.
        loss: full, or half: only positions i >= tgt_len // 2, segments overlapping accordingly.
        batch_size: streams trained on at once.
        batch_chunk: parts into which a batch is cut to save memory; the step is the same.
        max_step: optimiser steps.
        lr: Adam's learning rate after warm-up; it falls along a cosine to zero at max_step.
        warmup_step: steps of linear warm-up.
        clip: largest global norm of the gradient.
        log_interval, eval_interval: steps between log lines, and between validations.
        eval_tokens: targets of each validation, spread evenly over valid; null for all.
        precision: fp32, bf16 (autocast), or auto: bf16 where the device is fast at it.
        average_from: share of the steps after which weights are averaged, and the average is
            what is validated and kept; null for no averaging.
        aux_layers: Al-Rfou's auxiliary loss of intermediate layers: layer k of n predicts the
            targets too, until k / 2n of the training is done.
        aux_positions: with half loss, the other positions are trained on too, as an auxiliary
            loss that is not reported (Al-Rfou's "multiple positions").
    """

    UNHASHED = frozenset({"log_interval"})
    ADDED = MappingProxyType({"average_from": None, "aux_layers": False, "aux_positions": False})

    tgt_len: int = Field(64, ge=1)
    mem_len: int | None = Field(None, ge=0)
    recurrence: bool = True
    loss: Literal["full", "half"] = "full"
    batch_size: int = Field(16, ge=1)
    batch_chunk: int = Field(1, ge=1)
    max_step: int = Field(1000, ge=1)
    lr: float = Field(2.5e-4, gt=0)
    warmup_step: int = Field(0, ge=0)
    clip: float = Field(0.25, gt=0)
    log_interval: int = Field(20, ge=1)
    eval_interval: int = Field(200, ge=1)
    eval_tokens: int | None = Field(None, ge=1)
    precision: Precision = "auto"
    average_from: float | None = Field(None, ge=0, lt=1)
    aux_layers: bool = False
    aux_positions: bool = False

    @model_validator(mode="before")
    @classmethod
    def _resolve_recurrence(cls, given: Any) -> Any:
        """No recurrence means no memory and no memory no recurrence, before anything else."""
        if not isinstance(given, dict):
            return given
        filled = dict(given)
        if filled.get("mem_len") is None:
            filled["mem_len"] = filled.get("tgt_len", 64)
        if type(filled["mem_len"]) is not int or filled["mem_len"] < 0:
            return filled  # refused below
        if filled.get("recurrence") is False or filled["mem_len"] == 0:
            filled["recurrence"], filled["mem_len"] = False, 0
        return filled

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.batch_size % self.batch_chunk:
            raise ValueError(
                f"batch_chunk {self.batch_chunk} does not divide batch_size {self.batch_size}"
            )
        if self.warmup_step > self.max_step:
            raise ValueError(
                f"warmup_step {self.warmup_step} is beyond max_step {self.max_step}; "
                "the learning rate would never be reached"
            )
        if self.aux_positions and self.loss == "full":
            raise ValueError("aux_positions goes with loss half: full loss trains on all positions")
        return self

    @property
    def memory(self) -> int:
        """mem_len as resolved."""
        assert self.mem_len is not None
        return self.mem_len

    @property
    def stride(self) -> int:
        """Tokens by which segments move on: those that each segment trains on."""
        return self.tgt_len - self.tgt_len // 2 if self.loss == "half" else self.tgt_len


class EvaluateConfig(Section):
    """How a trained model is measured; none of it changes what is trained.

    Attributes:
        split: the split that is reported; lengths are chosen on valid.
        tgt_len: tokens a segment in streaming evaluation; default as trained.
        mem_len: attention length where attention_lengths is empty; default as trained.
        batch_size: streams evaluated at once.
        attention_lengths: numbers of keys a query sees, itself included, that are tried.
        clamp_len: distances beyond it count as clamp_len in the sweep; default the model's.
        tokens: targets scored, in blocks spread evenly over the split; null for all.
        stride: tokens by which a window moves on; default max(1, length // 4); 1 is the paper's
            sliding window.
        tolerance: nats within which a shorter attention length counts as equal to the best.
    """

    split: Split = "test"
    tgt_len: int | None = Field(None, ge=1)
    mem_len: int | None = Field(None, ge=1)
    batch_size: int = Field(10, ge=1)
    attention_lengths: tuple[int, ...] = Field((), strict=False)
    clamp_len: int | None = Field(None, ge=0)
    tokens: int | None = Field(None, ge=1)
    stride: int | None = Field(None, ge=1)
    tolerance: float = Field(5e-4, ge=0)

    @field_validator("attention_lengths")
    @classmethod
    def _positive(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if any(length < 1 for length in lengths):
            raise ValueError(f"attention lengths {list(lengths)} must be at least 1")
        return tuple(sorted(set(lengths)))


class RunConfig(Section):
    """One trained model: a row of an experiment with a seed, everything resolved."""

    corpus: CorpusConfig
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    seed: int = Field(1, ge=0, lt=2**31)

    @model_validator(mode="before")
    @classmethod
    def _corpus_by_name(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(given.get("corpus"), str):
            return {**given, "corpus": {"name": given["corpus"]}}
        return given

    @model_validator(mode="after")
    def _resolve_max_distance(self) -> Self:
        """Sizes learned tables by what training meets, where nothing else was asked for."""
        largest = {
            "shaw": self.train.tgt_len - 1 + self.train.memory,
            "al-rfou": self.train.tgt_len - 1,
        }.get(self.model.encoding)
        if largest is not None and self.model.max_distance is None:
            # Frozen for users; a validator may still complete what it validates.
            object.__setattr__(
                self, "model", self.model.model_copy(update={"max_distance": largest})
            )
        return self

    @model_validator(mode="after")
    def _check(self) -> Self:
        model, train = self.model, self.train
        if model.same_length and not train.recurrence:
            raise ValueError(
                "model.same_length sees exactly mem_len keys, but there is no memory; "
                "set train.mem_len or drop same_length"
            )
        if model.encoding == "al-rfou" and train.tgt_len - 1 > (model.max_distance or 0):
            raise ValueError(
                f"model.max_distance {model.max_distance} is too small for al-rfou at "
                f"train.tgt_len {train.tgt_len}; leave it out"
            )
        if model.encoding == "al-rfou" and self.evaluate.tgt_len and train.recurrence:
            positions = (model.max_distance or 0) + 1
            if self.evaluate.tgt_len > positions:
                raise ValueError(
                    f"evaluate.tgt_len {self.evaluate.tgt_len} is too long for al-rfou, which "
                    f"learns {positions} positions; use at most {positions}"
                )
        if self.evaluate.stride and self.evaluate.attention_lengths:
            shortest = self.evaluate.attention_lengths[0]
            if not train.recurrence and self.evaluate.stride > shortest:
                raise ValueError(
                    f"evaluate.stride {self.evaluate.stride} is longer than the shortest "
                    f"attention length {shortest}; tokens would be left out"
                )
        return self
