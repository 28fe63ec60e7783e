"""How a loss in nats is shown: bits per character for bytes and characters, else perplexity.

What all parts of a configuration have in common.
"""

import math
from collections.abc import Mapping
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
