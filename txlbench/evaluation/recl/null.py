"""Net gain of one model alone, and its sign-flip test against noise.

The paper's gain is never negative, so noise between two contexts counts as gain, and so does
choosing the hardest tokens by a noisy baseline. The net gain has mean 0 under noise: for a step
from c to c' with d(t) = l(c, t) - l(c', t) it is 1 - exp(-mean of d) over the tokens with the
largest max(l(c, t), l(c', t)). That choice does not change when the two contexts are exchanged, so
flipping the signs of d gives a one-sided test.

d(t) depends on its neighbours in a text, so whole blocks of consecutive tokens are flipped. The
test is exact where the sums of d over blocks are independent and symmetric about 0. There are
always 50 blocks, as long as the tokens allow: long blocks leave least dependence between them, and
50 cost hardly any power (as a t-test of 50 values beside the normal one). Level and power on
independent, correlated and skewed noise: `docs/recl.md`, tests/benchmarks/recl_power.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.errors import UserError
from txlbench.evaluation.recl.metric import Gains, count_of, gains, hardest_first, relative_gain

BLOCKS = 50
REACH = 16
"""Tokens of text that a block covers at least."""
TIMES = 3
"""Autocorrelation times of d(t) that a block covers at least; with 3, 1/6 to 1/9 of the variance of
block sums is missed, and the level is .06 to .07 instead of .05."""
WINDOW = 5
"""Lags summed for an autocorrelation time, in such times (Sokal 1997, section 3)."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of consecutive tokens, which are flipped and drawn together.

    Attributes:
        index: [T], the block of each position, ascending from 0.
    """

    index: NDArray[np.intp]

    @property
    def count(self) -> int:
        return int(self.index[-1]) + 1

    @property
    def length(self) -> int:
        """Positions of a block; some have one more."""
        return len(self.index) // self.count

    @property
    def sizes(self) -> NDArray[np.intp]:
        return np.bincount(self.index)


def check_count(positions: NDArray[np.int64], time: float = 1.0) -> None:
    """Refuses (UserError) too few ascending `positions` [T] for 50 independent blocks.

    Positions that lie unevenly count as their closest pair.

    Args:
        time: autocorrelation time of the changes of the loss, in positions.
    """
    tokens = len(positions)
    spacing = int(np.diff(positions).min()) if tokens > 1 else REACH
    needed = max(-(-REACH // spacing), int(np.ceil(TIMES * time)))
    if tokens < BLOCKS * needed:
        why = f", as changes of the loss are alike over {time:.0f} of them" if time > 1.5 else ""
        raise UserError(
            f"too few tokens: {tokens:,}, and the test against noise needs {BLOCKS} blocks of "
            f"{needed}{why}",
            f"score at least {BLOCKS * needed:,} tokens",
        )


def blocks_of(positions: NDArray[np.int64], losses: NDArray[np.float64]) -> Blocks:
    """50 blocks of the tokens at ascending `positions` [T].

    Args:
        losses: [M, C, T] of the group; where they depend on their neighbours is measured.

    Raises:
        UserError: where 50 blocks are too short to be independent.
    """
    check_count(positions, max(autocorrelation_time(each[:-1] - each[1:]) for each in losses))
    return Blocks(np.arange(len(positions)) * BLOCKS // len(positions))


def autocorrelation_time(changes: NDArray[np.float64]) -> float:
    """The integrated autocorrelation time of d(t), 1 + 2 sum of rho(k), in positions; at least 1.

    The sum over T tokens varies as that of T / time independent ones. rho is the mean over the
    steps, and the sum ends at the first lag of at least five times (Sokal 1997).

    Args:
        changes: [S, T], d(t) of one model at each step; steps without any change are left out.
    """
    tokens = changes.shape[1]
    size = 1 << (2 * tokens - 1).bit_length()  # zeros between the two ends
    correlations = []
    for change in changes:
        centred = change - change.mean()
        if centred @ centred > 1e-12 * (change @ change):
            power = np.abs(np.fft.rfft(centred, size)) ** 2
            covariance = np.fft.irfft(power, size)[:tokens]
            correlations.append(covariance / covariance[0])
    if not correlations:
        return 1.0
    times = 2 * np.cumsum(np.mean(correlations, axis=0)) - 1
    enough = np.flatnonzero(np.arange(tokens) >= WINDOW * times)
    return max(1.0, float(times[enough[0] if enough.size else -1]))


FLIPS = 99_999
"""So many that p near .05 varies by .0007 (standard deviation) from seed to seed."""
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
    """Net gains and p-values of one model whose `losses` are [C, T]."""
    change = losses[:-1] - losses[1:]
    order = hardest_first(np.maximum(losses[:-1], losses[1:]))
    ranked, block = np.take_along_axis(change, order, axis=1), blocks.index[order]
    counts = [count_of(share, losses.shape[1]) for share in shares]
    means = np.stack([ranked[:, :count].mean(axis=1) for count in counts])
    sums = [_by_block(ranked[:, :count], block[:, :count], blocks.count) for count in counts]
    p = p_values(np.concatenate(sums), signs).reshape(means.shape)
    return NetGains(relative_gain(means), p)


def p_values(sums: NDArray[np.float64], signs: NDArray[np.int8]) -> NDArray[np.float64]:
    """[N]: the share of sign flips that make the total of a line of `sums` [N, B] as large.

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
    """Gains, net gains and p-values of M models at R shares and S steps: [M, R, S] each."""

    gains: Gains
    net_gains: NDArray[np.float64]
    p: NDArray[np.float64]

    def after(self, steps: int) -> "Measures":
        """The same without the first `steps` context steps."""
        later = Gains(self.gains.relative[..., steps:], self.gains.baseline[..., steps:])
        return Measures(later, self.net_gains[..., steps:], self.p[..., steps:])

    def counts(self, threshold: float) -> NDArray[np.bool_]:
        """The steps whose gain reaches the threshold, as in the paper."""
        return self.gains.relative >= threshold

    def counts_above_null(self, threshold: float) -> NDArray[np.bool_]:
        """The steps whose net gain reaches it too and passes the sign-flip test.

        A walk stops at the first step that does not count, so tests along it need no correction.
        """
        return self.counts(threshold) & (self.net_gains >= threshold) & (self.p <= LEVEL)


def measure(
    losses: NDArray[np.float64],
    shares: Sequence[float],
    blocks: Blocks,
    signs: NDArray[np.int8],
) -> Measures:
    """Gains, net gains and p-values of the group whose `losses` are [M, C, T]."""
    alone = [net_gains(each, shares, blocks, signs) for each in losses]
    return Measures(
        gains(losses, shares),
        np.stack([each.relative for each in alone]),
        np.stack([each.p for each in alone]),
    )
