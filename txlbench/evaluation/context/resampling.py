"""One resampling of blocks of tokens, which every measure of a group shares.

Each measure is a function of means over tokens. A mean over resampled tokens is a product of
matrices, [resamples x blocks] @ [blocks x contexts], so that nothing of the size of the losses is
ever drawn; what the measure then is of each resample is its interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from txlbench.errors import UserError
from txlbench.evaluation.recl.bootstrap import RESAMPLES, draw_resamples
from txlbench.evaluation.recl.null import blocks_of
from txlbench.records.context_schema import Interval
from txlbench.records.finding_schema import BlockCount

LEAST_SHARE = 0.95
"""Share of the resamples in which a measure must exist; with fewer it is not resolved."""


@dataclass(frozen=True, eq=False)
class Resampling:
    """The tokens as they are, and N resamples of them.

    Attributes:
        starts: [B], the first token of each block.
        copies: [1 + N, B], how often each block is drawn; the first line, all 1, is the tokens as
            they are. N is 0 where there are too few tokens.
        blocks: None where there are too few tokens.
        problem: why there are no resamples; empty where there are.
    """

    starts: NDArray[np.intp]
    copies: NDArray[np.float64]
    blocks: BlockCount | None
    problem: str = ""

    @classmethod
    def of(
        cls, losses: NDArray[np.float64], positions: NDArray[np.int64], seed: int
    ) -> "Resampling":
        """The resampling of tokens at ascending `positions` [T] whose losses are [M, C, T]."""
        try:
            blocks = blocks_of(positions, losses)
        except UserError as error:
            whole = np.zeros(1, dtype=np.intp)
            return cls(whole, np.ones((1, 1)), None, error.problem)
        drawn = draw_resamples(np.random.default_rng(seed), RESAMPLES, blocks)
        return cls(
            np.flatnonzero(np.diff(blocks.index, prepend=-1)),
            np.concatenate([np.ones((1, blocks.count)), drawn.copies]),
            BlockCount(count=blocks.count, positions=blocks.length),
        )

    def totals(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """[..., 1 + N]: sums over tokens of `values` [..., T]."""
        sums = np.add.reduceat(values, self.starts, axis=-1, dtype=np.float64)
        found: NDArray[np.float64] = sums @ self.copies.T
        return found

    def means(
        self, values: NDArray[np.floating], chosen: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float64]:
        """[..., 1 + N]: means of `values` [..., T] over all tokens, or those `chosen` [T].

        A resample in which none is chosen gives NaN.
        """
        if chosen is None:
            chosen = np.ones(values.shape[-1], dtype=np.bool_)
        with np.errstate(invalid="ignore"):
            found: NDArray[np.float64] = self.totals(values * chosen) / self.totals(
                chosen.astype(np.float64)
            )
        return found


def interval(values: NDArray[np.float64]) -> Interval:
    """The interval of a measure whose value is the first of [1 + N], the rest its resamples."""
    drawn = values[1:][np.isfinite(values[1:])]
    if drawn.size < LEAST_SHARE * max(1, len(values) - 1):
        return Interval(value=float(values[0]))
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    return Interval(value=float(values[0]), low=low, high=high)


def intervals(values: NDArray[np.float64]) -> tuple[Interval, ...]:
    """The intervals of K measures, [K, 1 + N]."""
    if values.shape[1] == 1 or not np.isfinite(values).all():
        return tuple(interval(each) for each in values)
    lows, highs = np.quantile(values[:, 1:], [0.025, 0.975], axis=1).tolist()
    return tuple(
        Interval(value=value, low=low, high=high)
        for value, low, high in zip(values[:, 0].tolist(), lows, highs, strict=True)
    )


def context_lengths(
    means: NDArray[np.float64], contexts: Sequence[int], threshold: float
) -> NDArray[np.float64]:
    """[1 + N]: effective context lengths of mean losses [C, 1 + N], as `recl` defines them."""
    best = means.argmin(axis=0)
    least = means.min(axis=0)
    is_worse = np.expm1(np.minimum(means - least, 700.0)) >= threshold
    is_worse &= np.arange(len(contexts))[:, None] < best
    last = len(contexts) - 1 - is_worse[::-1].argmax(axis=0)
    found = np.where(is_worse.any(axis=0), last + 1, 0)
    lengths: NDArray[np.float64] = np.asarray(contexts, dtype=np.float64)[found]
    return lengths
