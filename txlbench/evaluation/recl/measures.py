"""All that is measured on the steps of a group of models, and which steps count."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.recl.blocks import Blocks
from txlbench.evaluation.recl.gains import Gains, gains
from txlbench.evaluation.recl.null import LEVEL, net_gains


@dataclass(frozen=True, eq=False)
class Measures:
    """Of M models, R shares and S steps: [M, R, S] each."""

    gains: Gains
    net_gains: NDArray[np.float64]
    p: NDArray[np.float64]

    def after(self, steps: int) -> "Measures":
        """Of a walk that starts so many steps later."""
        later = Gains(self.gains.relative[..., steps:], self.gains.baseline[..., steps:])
        return Measures(later, self.net_gains[..., steps:], self.p[..., steps:])

    def counts(self, threshold: float) -> NDArray[np.bool_]:
        """The steps whose gain reaches the threshold, as in the paper."""
        return self.gains.relative >= threshold

    def counts_above_null(self, threshold: float) -> NDArray[np.bool_]:
        """Those of them whose net gain does too, and is none of noise.

        A walk stops at the first step that does not count, so tests along it need no correction.
        """
        return self.counts(threshold) & (self.net_gains >= threshold) & (self.p <= LEVEL)


def measure(
    losses: NDArray[np.float64],
    shares: Sequence[float],
    blocks: Blocks,
    signs: NDArray[np.int8],
) -> Measures:
    """Of the group whose `losses` are [M, C, T]."""
    alone = [net_gains(each, shares, blocks, signs) for each in losses]
    return Measures(
        gains(losses, shares),
        np.stack([each.relative for each in alone]),
        np.stack([each.p for each in alone]),
    )
