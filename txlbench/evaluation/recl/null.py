"""What a gain is worth: the net gain of one model alone, and its test against noise.

The paper's gain is never negative, so noise between two contexts counts as gain, and so does
choosing the hardest tokens by a noisy baseline. The net gain has mean 0 under noise: for a step
from c to c' with d(t) = l(c, t) - l(c', t) it is 1 - exp(-mean of d) over the tokens with the
largest max(l(c, t), l(c', t)). That choice does not change when the two contexts are exchanged, so
flipping signs of d, whole blocks of consecutive tokens at once, gives an exact one-sided test.

Its level is 5 %. Its power at a true gain of .01, where single losses vary by .1 nats (standard
deviation) from context to context and every token gains alike: with 2,000 tokens .95 at r = 1, .75
at .5 and .25 at .1; with 10,000 tokens 1.0, 1.0 and .74 (tests/evaluation/recl/test_power.py).

Blocks of consecutive tokens, which are flipped and drawn together as they depend on another.

All that is measured on the steps of a group of models, and which steps count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.errors import UserError
from txlbench.evaluation.recl.metric import Gains, count_of, gains, hardest_first, relative_gain

REACH = 16
"""Tokens of text that a block covers at least."""
FEWEST = 50


@dataclass(frozen=True, eq=False)
class Blocks:
    """The block of each of T positions.

    Attributes:
        index: [T], ascending from 0.
        length: positions a block; the last may have fewer.
    """

    index: NDArray[np.intp]
    length: int

    @property
    def count(self) -> int:
        return int(self.index[-1]) + 1

    @property
    def sizes(self) -> NDArray[np.intp]:
        return np.bincount(self.index)


def blocks_of(positions: NDArray[np.int64]) -> Blocks:
    """Blocks over ascending `positions` [T]; those that lie unevenly count as their closest pair.

    Raises:
        UserError: where there are fewer than 50.
    """
    spacing = int(np.diff(positions).min()) if len(positions) > 1 else REACH
    length = -(-REACH // spacing)
    blocks = Blocks(np.arange(len(positions)) // length, length)
    if blocks.count < FEWEST:
        raise UserError(
            f"too few tokens: {len(positions):,} make {blocks.count} blocks of {length}, and the "
            f"test against noise needs {FEWEST}",
            f"score at least {(FEWEST - 1) * length + 1:,} tokens",
        )
    return blocks


FLIPS = 999
LEVEL = 0.05
AT_ONCE = 1 << 22
"""Signs (numbers) that are multiplied at a time, to bound memory."""


@dataclass(frozen=True, eq=False)
class NetGains:
    """Net gains and p-values of R shares and S steps: [R, S] each."""

    relative: NDArray[np.float64]
    p: NDArray[np.float64]


def draw_signs(random: np.random.Generator, blocks: int, flips: int = FLIPS) -> NDArray[np.int8]:
    """[F, B] of -1 and 1."""
    return (2 * random.integers(2, size=(flips, blocks), dtype=np.int8) - 1).astype(np.int8)


def net_gains(
    losses: NDArray[np.float64], shares: Sequence[float], blocks: Blocks, signs: NDArray[np.int8]
) -> NetGains:
    """Of one model whose `losses` are [C, T]."""
    change = losses[:-1] - losses[1:]
    order = hardest_first(np.maximum(losses[:-1], losses[1:]))
    ranked, block = np.take_along_axis(change, order, axis=1), blocks.index[order]
    counts = [count_of(share, losses.shape[1]) for share in shares]
    means = np.stack([ranked[:, :count].mean(axis=1) for count in counts])
    sums = [_by_block(ranked[:, :count], block[:, :count], blocks.count) for count in counts]
    p = p_values(np.concatenate(sums), signs).reshape(means.shape)
    return NetGains(relative_gain(means), p)


def p_values(sums: NDArray[np.float64], signs: NDArray[np.int8]) -> NDArray[np.float64]:
    """[N]: how rarely flipped signs make the total of a line of `sums` [N, B] as large.

    A flip that only touches zeros ties with what was observed; rounding must not break the tie.
    """
    least = sums.sum(axis=1) - 1e-12 * np.abs(sums).sum(axis=1)
    pieces = -(-signs.size // AT_ONCE)
    reached = sum(
        np.count_nonzero(sums @ part.T.astype(np.float64) >= least[:, None], axis=1)
        for part in np.array_split(signs, pieces)
    )
    p: NDArray[np.float64] = (1 + reached) / (1 + len(signs))
    return p


def _by_block(
    values: NDArray[np.float64], block: NDArray[np.intp], blocks: int
) -> NDArray[np.float64]:
    """[S, B]: sums of [S, N] `values` whose blocks are `block` [S, N]."""
    steps = len(values)
    place = block + blocks * np.arange(steps)[:, None]
    sums: NDArray[Any] = np.bincount(place.ravel(), values.ravel(), minlength=steps * blocks)
    return sums.reshape(steps, blocks)


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
