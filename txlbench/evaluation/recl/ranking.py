"""The hardest tokens: how many a share r is, and which they are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def count_of(share: float, tokens: int) -> int:
    """ceil(r n), where 0.07 of 100 is 7 although its product is a little more; at least 1."""
    return int(counts_of(share, np.array(tokens)))


def counts_of(share: float, tokens: NDArray[np.intp]) -> NDArray[Any]:
    """`count_of` for several numbers of tokens."""
    return np.maximum(1, np.ceil(share * tokens - 1e-9)).astype(np.intp)


def hardest_first(losses: NDArray[np.float64]) -> NDArray[Any]:
    """Order of the last axis from the largest loss down, ties to the earlier."""
    return np.argsort(-losses, axis=-1, kind="stable")


def relative_gain(nats: Any) -> Any:
    """1 - exp(-x): the share of perplexity that x nats less take away."""
    return -np.expm1(np.minimum(-nats, 700.0))
