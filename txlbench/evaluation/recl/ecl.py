"""Effective context length of one model alone (Khandelwal et al. 2018)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def effective_context_length(
    losses: NDArray[np.float64], contexts: Sequence[int], threshold: float
) -> int:
    """The shortest context from which on perplexity is less than 1 % above that of the longest.

    Khandelwal et al. compare with an unlimited context; here it is the longest one measured.

    Args:
        losses: [C, T] of one model, nats.
        threshold: the 1 % as a share.
    """
    means = losses.mean(axis=1)
    is_worse = np.expm1(np.minimum(means - means[-1], 700.0)) >= threshold
    return contexts[int(np.flatnonzero(is_worse)[-1]) + 1 if is_worse.any() else 0]
