"""How a loss in nats is shown: bits per character for bytes and characters, else perplexity."""

import math

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
