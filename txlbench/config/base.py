"""What every part shares: validated sections, the span of attention, and units of losses."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

Split = Literal["train", "valid", "test"]


class Section(BaseModel):
    """A frozen part of a configuration, strictly validated; unknown keys are refused.

    `UNHASHED` names the fields that do not change what is trained. `ADDED` maps a field that
    was added after runs had been published to the value that keeps the old behaviour: with that
    value it is left out of the identity, so published ids stay.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    UNHASHED: ClassVar[frozenset[str]] = frozenset()
    ADDED: ClassVar[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class AttentionSpan:
    """How far a model attends; chosen at run time, since it changes no weight.

    Attributes:
        mem_len: hidden states of earlier tokens that are cached, 0 for none.
        clamp_len: relative distances are clamped at this value; None for no limit.
        same_length: every query sees exactly mem_len keys, itself included, as in the official
            PyTorch code; needs mem_len of at least 1.
        stride: tokens by which segments move on; only the first `stride` states of a segment
            enter memory, as the next segment reads the others again. None for all of them.
    """

    mem_len: int
    clamp_len: int | None = None
    same_length: bool = False
    stride: int | None = None

    def __post_init__(self) -> None:
        if self.same_length and self.mem_len < 1:
            raise ValueError("same_length needs mem_len of at least 1: each query sees itself")

    @property
    def attention_length(self) -> int | None:
        """The number of keys each query sees, itself included; None for all there are."""
        return self.mem_len if self.same_length else None


DECIMALS = {"bpc": 3, "ppl": 2}
"""Digits after the point in tables and on screen; files keep full precision."""

LARGEST_EXPONENT = 700.0
"""exp() of more overflows; a loss that high is no result, but must not stop a table."""


def displayed(nats: float, unit: str) -> float:
    """`nats` in `unit`: bpc (nats / ln 2) or ppl (exp nats)."""
    return nats / math.log(2) if unit == "bpc" else math.exp(min(nats, LARGEST_EXPONENT))


def shown(value: float, unit: str, sign: bool = False) -> str:
    """A number of `unit` as people read it, with its sign if it is a difference."""
    return f"{value:{'+' if sign else ''},.{DECIMALS[unit]}f}"
