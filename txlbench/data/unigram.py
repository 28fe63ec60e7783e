"""The unigram model: what a model that ignores all context would score."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.config.section import Split

Counts = Mapping[Split, NDArray[np.int64]]
"""How often each id occurs in each split, [V]."""


def unigram_losses(counts: Counts) -> dict[Split, float]:
    """Nats a token of every split under add-one-smoothed unigram frequencies of train.

    A model of any use lies well below it; one that stays there has learned nothing.
    """
    smoothed: NDArray[Any] = counts["train"] + 1
    log_probs = np.log(smoothed / smoothed.sum())
    return {split: float(-(c @ log_probs) / c.sum()) for split, c in counts.items()}
