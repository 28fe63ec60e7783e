"""Block bootstrap of RECL: how far it depends on the tokens that happened to be scored.

Each resample draws as many blocks as there are, with replacement, chooses the hardest tokens
anew at every step, and walks again by both definitions. It covers the sampling of tokens only,
neither the inflation of gains by noise nor what another training seed would give.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.recl.metric import counts_of, hardest_first, relative_gain
from txlbench.evaluation.recl.null import Blocks

RESAMPLES = 1000
CRITICAL = 1.645
"""One-sided 5 % critical value, in standard deviations of the sign-flipped sum (normal
approximation), by which the steps of a resample are tested."""


@dataclass(frozen=True, eq=False)
class Resamples:
    """N resamples of a text of B blocks.

    Attributes:
        copies: [N, B], how often each block was drawn.
        sizes: [N], tokens.
    """

    copies: NDArray[np.float64]
    sizes: NDArray[np.intp]

    def only(self, rows: NDArray[np.intp]) -> "Resamples":
        """Some of them."""
        return Resamples(self.copies[rows], self.sizes[rows])

    def hardest_sums(
        self, values: NDArray[np.float64], block: NDArray[np.intp], shares: Sequence[float]
    ) -> NDArray[np.float64]:
        """Sums of V values over the hardest tokens of each resample: [V, R, N].

        These tokens are the first so many of one order, so no resample is ever made: the last of
        them is found by bisection. Copies of one token are taken or left together.

        Args:
            values: [V, T], the hardest first; the first of them all 1, so that they are counted.
            block: [T], of the same tokens.
        """
        wanted = np.stack([counts_of(share, self.sizes) for share in shares])
        first, last = np.zeros_like(wanted), np.full_like(wanted, len(block) - 1)
        counts = self._running(values[0], block)
        while (first < last).any():
            middle = (first + last) // 2
            is_enough = self._sums(counts, middle) >= wanted
            first, last = np.where(is_enough, first, middle + 1), np.where(is_enough, middle, last)
        return np.stack([self._sums(self._running(each, block), last) for each in values])

    def _running(self, values: NDArray[np.float64], block: NDArray[np.intp]) -> NDArray[np.float64]:
        """[T, B]: the sum of each block's `values` over the tokens up to each."""
        parts = np.zeros((len(block), self.copies.shape[1]))
        parts[np.arange(len(block)), block] = values
        return np.cumsum(parts, axis=0, out=parts)

    def _sums(self, running: NDArray[np.float64], last: NDArray[np.intp]) -> NDArray[np.float64]:
        """[R, N]: sums of each resample up to its token `last` [R, N], that one included."""
        return np.stack([np.einsum("nb,nb->n", running[each], self.copies) for each in last])


def draw_resamples(random: np.random.Generator, number: int, blocks: Blocks) -> Resamples:
    """Resamples of as many blocks as there are, drawn with replacement."""
    drawn = random.integers(blocks.count, size=(number, blocks.count))
    place = drawn + blocks.count * np.arange(number)[:, None]
    copies = np.bincount(place.ravel(), minlength=drawn.size).reshape(drawn.shape)
    return Resamples(copies.astype(np.float64), copies @ blocks.sizes)


@dataclass(frozen=True, eq=False)
class Ordered:
    """Values of T tokens at one step, the hardest first.

    Attributes:
        values: [V, T], the first of them 1.
        block: [T].
    """

    values: NDArray[np.float64]
    block: NDArray[np.intp]


def bootstrap(
    losses: NDArray[np.float64],
    shares: Sequence[float],
    threshold: float,
    blocks: Blocks,
    random: np.random.Generator,
) -> NDArray[np.intp]:
    """[2, M, R, N]: steps that each resample's walks take, by the paper and above the null.

    Args:
        losses: [M, C, T].
    """
    resamples = draw_resamples(random, RESAMPLES, blocks)
    shape = (len(losses), len(shares), RESAMPLES)
    paper, above = np.ones(shape, dtype=bool), np.ones(shape, dtype=bool)
    taken = np.zeros((2, *shape), dtype=np.intp)
    for before, after in zip(losses.swapaxes(0, 1)[:-1], losses.swapaxes(0, 1)[1:], strict=True):
        rows = np.flatnonzero(paper.any(axis=(0, 1)))  # others are no longer on their way
        if not rows.size:
            break
        ordered = _by_baseline(before, after, blocks)
        paper[..., rows] &= _gain(ordered, shares, resamples.only(rows)) >= threshold
        above &= paper
        for model, own in enumerate(above):
            rows = np.flatnonzero(own.any(axis=0))
            ordered = _by_own_loss(before[model], after[model], blocks)
            own[:, rows] &= _is_above_null(ordered, shares, threshold, resamples.only(rows))
        taken += [paper, above]
    return taken


def shares_of(lengths: Sequence[int]) -> dict[str, float]:
    """Share of resamples at each length, ascending."""
    return {str(key): n / len(lengths) for key, n in sorted(Counter(lengths).items())}


def interval_of(lengths: Sequence[int]) -> tuple[int, int]:
    """The 2.5 and 97.5 % quantiles, each a length that occurred."""
    low, high = np.quantile(lengths, [0.025, 0.975], method="inverted_cdf")
    return int(low), int(high)


def _by_baseline(
    before: NDArray[np.float64], after: NDArray[np.float64], blocks: Blocks
) -> Ordered:
    """What each model gains on its group's baseline: b(c, t) - min(b(c, t), l(c', t)).

    Args:
        before, after: losses [M, T] at c and at c'.
    """
    baseline = before.min(axis=0)
    order = hardest_first(baseline)
    gained = np.maximum(baseline - after, 0.0)
    values = np.concatenate([np.ones((1, len(order))), gained[:, order]])
    return Ordered(values, blocks.index[order])


def _by_own_loss(
    before: NDArray[np.float64], after: NDArray[np.float64], blocks: Blocks
) -> Ordered:
    """d(t) of one model's losses [T], and what it adds to the square of its block's sum."""
    order = hardest_first(np.maximum(before, after))
    change, block = (before - after)[order], blocks.index[order]
    by_block = np.argsort(block, kind="stable")
    running = np.cumsum(change[by_block])
    starts = np.searchsorted(block[by_block], np.arange(blocks.count))
    offsets = np.concatenate([[0.0], running])[starts]
    sums = np.empty_like(change)
    sums[by_block] = running - offsets[block[by_block]]
    squares = sums**2 - (sums - change) ** 2
    return Ordered(np.stack([np.ones(len(order)), change, squares]), block)


def _gain(ordered: Ordered, shares: Sequence[float], resamples: Resamples) -> NDArray[np.float64]:
    """[M, R, N]: the paper's gain in each resample."""
    number, *gained = resamples.hardest_sums(ordered.values, ordered.block, shares)
    gain: NDArray[np.float64] = relative_gain(np.stack(gained) / number)
    return gain


def _is_above_null(
    ordered: Ordered, shares: Sequence[float], threshold: float, resamples: Resamples
) -> NDArray[np.bool_]:
    """[R, N]: whether net gain and sign-flip test let the step count in each resample."""
    number, change, squares = resamples.hardest_sums(ordered.values, ordered.block, shares)
    is_large: NDArray[np.bool_] = relative_gain(change / number) >= threshold
    return is_large & (change >= CRITICAL * np.sqrt(np.maximum(squares, 0.0)))
