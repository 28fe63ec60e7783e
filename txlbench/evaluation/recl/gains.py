"""Relative gain of a longer context, as the paper defines it (Dai et al. 2019, Appendix C).

l_i(c, t) is model i's loss on token t given c predecessors, b(c, t) the least loss of the group,
T the r n tokens with the largest b(c, t), and
    f_i(c, c') = mean over T of min(b(c, t), l_i(c', t)),
    g_i(c, c') = (exp f_i(c, c) - exp f_i(c, c')) / exp f_i(c, c).
f_i(c, c) is the mean of b, the same for every model. The paper does not say whether T is chosen
again for every c; b(c, t) depends on c, so here it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.recl.ranking import count_of, hardest_first, relative_gain


@dataclass(frozen=True, eq=False)
class Gains:
    """Gains of M models at R shares over the S = C - 1 steps from one context to the next.

    Attributes:
        relative: [M, R, S], g_i(c, c').
        baseline: [R, S], exp f_i(c, c), a perplexity.
    """

    relative: NDArray[np.float64]
    baseline: NDArray[np.float64]

    @property
    def differences(self) -> NDArray[np.float64]:
        """[M, R, S]: exp f_i(c, c) - exp f_i(c, c'), in perplexity."""
        return self.baseline * self.relative


def gains(losses: NDArray[np.float64], shares: Sequence[float]) -> Gains:
    """The gains of the group whose `losses` are [M, C, T]."""
    baseline = losses.min(axis=0)[:-1]
    order = hardest_first(baseline)
    helped = np.minimum(baseline, losses[:, 1:])
    counts = [count_of(share, losses.shape[2]) for share in shares]
    before = _means(baseline, order, counts)
    after = np.stack([_means(each, order, counts) for each in helped])
    return Gains(relative_gain(before - after), np.exp(np.minimum(before, 700.0)))


def _means(
    values: NDArray[np.float64], order: NDArray[np.intp], counts: Sequence[int]
) -> NDArray[np.float64]:
    """[R, S]: means of [S, T] `values` over the first tokens of each order."""
    ranked = np.take_along_axis(values, order, axis=1)
    return np.stack([ranked[:, :count].mean(axis=1) for count in counts])
