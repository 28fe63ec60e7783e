"""What every part shares: validated sections, the span of attention, and units of losses."""

import inspect
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

Split = Literal["train", "valid", "test"]
Part = Split | Literal["all"]
"""A split of a corpus, or all of it."""


class Section(BaseModel):
    """A frozen part of a configuration, strictly validated; unknown keys are refused.

    `UNHASHED` names the fields that do not change what is trained. `ADDED` maps a field that
    was added after runs had been published to the value that keeps the old behaviour: with that
    value it is left out of the identity, so published ids stay.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    UNHASHED: ClassVar[frozenset[str]] = frozenset()
    ADDED: ClassVar[Mapping[str, object]] = MappingProxyType({})


RopeKind = Literal["pi", "ntk", "yarn"]


class RopeScaling(Section):
    """How rotary positions are changed beyond the trained length; see `models.positions.rope`.

    Attributes:
        kind: pi (position interpolation), ntk or yarn.
        factor: how many times the trained length is to be used.
        trained: the largest number of keys that a query met in training.
    """

    kind: RopeKind
    factor: float = Field(ge=1)
    trained: int = Field(ge=1)


@dataclass(frozen=True, kw_only=True)
class AttentionSpan:
    """How far a model attends; chosen at run time, since it changes no weight.

    Attributes:
        mem_len: hidden states of earlier tokens that are cached, 0 for none.
        clamp_len: relative distances are clamped at this value; None for no limit.
        same_length: every query sees exactly mem_len keys, itself included, as in the official
            PyTorch code; needs mem_len of at least 1.
        sinks: of the mem_len states, how many are the first that the stream had (Xiao et al. 2024).
            Every query sees them, and positions count by places in memory.
        rope: how rotary positions are scaled; None for as trained, and for other encodings.
        stride: tokens by which segments move on; only the first `stride` states of a segment
            enter memory, as the next segment reads the others again. None for all of them.
    """

    mem_len: int
    clamp_len: int | None = None
    same_length: bool = False
    stride: int | None = None
    rope: RopeScaling | None = None
    sinks: int = 0

    def __post_init__(self) -> None:
        if self.sinks and self.sinks >= self.mem_len:
            raise ValueError(f"sinks {self.sinks}: memory of {self.mem_len} has no room for others")
        if self.same_length and self.mem_len < 1:
            raise ValueError("same_length needs mem_len of at least 1: each query sees itself")

    @property
    def attention_length(self) -> int | None:
        """The number of keys each query sees, itself included; None for all there are."""
        return self.mem_len if self.same_length else None


DECIMALS = {"bpc": 3, "bpb": 3, "ppl": 2}
"""Digits after the point in tables and on screen; files keep full precision."""

LARGEST_EXPONENT = 700.0
"""exp() of more overflows, or the sum of a few such values does."""


def displayed(nats: float, unit: str) -> float:
    """`nats` in `unit`: bpc or bpb (nats / ln 2), or ppl (exp nats; infinite beyond floats)."""
    if unit in ("bpc", "bpb"):
        return nats / math.log(2)
    return math.exp(nats) if nats <= LARGEST_EXPONENT else math.inf


def is_exploded(nats: float, vocabulary_size: int) -> bool:
    """Whether a mean loss is far above a uniform guess's, so that the training diverged.

    Worse than unigram, a model may still be: random weights are a little above a uniform guess.
    """
    return nats > 2 * math.log(vocabulary_size) + 1


def shown(value: float, unit: str, sign: bool = False, digits: int | None = None) -> str:
    """A number of `unit` as people read it, with its sign if it is a difference.

    Args:
        digits: after the point, if not the unit's usual ones.
    """
    if abs(value) >= 1e9:  # of an exploded model: no line should be long for it
        return f"{value:{'+' if sign else ''}.3g}"
    decimals = DECIMALS[unit] if digits is None else digits
    return f"{value:{'+' if sign else ''},.{decimals}f}"


@dataclass(frozen=True)
class DocumentedKey:
    """A key of an experiment file as `schema` lists it."""

    name: str
    type: str
    default: str
    meaning: str


WORDS = {bool: "true or false", int: "whole number", float: "number", str: "text", None: "null"}
BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "min_length": "of length >="}


def documented_fields(section: type[Section], prefix: str = "") -> Iterator[DocumentedKey]:
    """The fields of `section` and of sections below it, each with its text of the docstring."""
    meanings = _meanings(inspect.getdoc(section) or "")
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            yield from documented_fields(field.annotation, f"{prefix}{name}.")
            continue
        default = "required"
        if not field.is_required():
            default = f"default {json.dumps(field.get_default(call_default_factory=True))}"
        yield DocumentedKey(prefix + name, _type_in_words(field), default, meanings[name])


def _type_in_words(field: FieldInfo) -> str:
    """What a field takes, as `whole number >= 1 or null`."""
    bounds = [
        f"{sign} {getattr(rule, bound):g}"
        for rule in field.metadata
        for bound, sign in BOUNDS.items()
        if hasattr(rule, bound)
    ]
    words = _in_words(field.annotation)
    kind = words.removesuffix(" or null")
    return " ".join([kind, " and ".join(bounds)]).strip() + words.removeprefix(kind)


def _in_words(annotation: Any) -> str:
    arguments = [None if each is type(None) else each for each in get_args(annotation)]
    if get_origin(annotation) is Literal:
        return " | ".join(map(str, arguments))
    if annotation in WORDS:
        return WORDS[annotation]
    if get_origin(annotation) in (list, tuple):
        return f"list of {_in_words(arguments[0])}"
    if get_origin(annotation) is dict or not arguments:
        return "mapping"
    return " or ".join(map(_in_words, arguments))


def _meanings(docstring: str) -> dict[str, str]:
    """Field -> what the `Attributes` of a docstring say of it; one entry may name several."""
    _, _, attributes = docstring.partition("Attributes:\n")
    entries = re.findall(r"^    (\w[\w, ]*): (.*(?:\n     .*)*)", attributes, re.MULTILINE)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}
