"""The L²M exponent: growth of bipartite mutual information with length (Chen et al. 2025).

I(L) between L tokens and the L tokens after them is sum over j < L of m(j) - m(L + j): what the
second half loses where the first is not known. A power law I = A L^b is fitted on log-log scales
to lengths 2, 4, 8, ... as in their program, by least squares without weights; it is refused where
the line explains less than `LEAST_R_SQUARED` of log I, as where I(L) stops growing, or I(L) is not
above 0.

No model knows an empty context well. Their program replaces m(0) + m(1) by a mixture of four
parts bigram entropy (Grassberger's estimator, from counts) and one part the model's own m(0) +
m(1). It takes m(0) from a model given its begin-of-text token; context losses begin at c = 1, so
m(0) is here the loss under the unigram counts of the training text, with and without correction.
Where no text is known the sum begins at j = 1, and there is no correction.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.context.resampling import LEAST_SHARE, interval, intervals
from txlbench.records.context_schema import Exponent

CORRECTION = 4 / 5
"""The share of the n-gram entropy in the first terms, as published."""
FIRST_LENGTH = 2
FEWEST_LENGTHS = 3
LEAST_R_SQUARED = 0.95
COUNTED = 1 << 24
"""Tokens that entropies are counted on at most."""


class NoExponentError(Exception):
    """Contexts are too few for mutual information; the message says how few."""


@dataclass(frozen=True, eq=False)
class Start:
    """What stands in for the losses of an empty context.

    Attributes:
        empty: [1 + N], m(0).
        bigram: entropy of two successive tokens, nats.
    """

    empty: NDArray[np.float64]
    bigram: float


def entropy(counts: NDArray[np.integer]) -> float:
    """Entropy in nats from `counts` of symbols, by Grassberger's (2003) estimator.

    H = ln n - 1/n sum of n_i G(n_i), with G(n) = psi(n) + (-1)^n / 2 [psi((n + 1) / 2) -
    psi(n / 2)]: less biased than the frequencies' own where many symbols were seen a few times.
    """
    from scipy.special import digamma

    seen, times = np.unique(counts[counts > 0], return_counts=True)
    sign = np.where(seen % 2 == 0, 0.5, -0.5)
    values = digamma(seen) + sign * (digamma((seen + 1) / 2) - digamma(seen / 2))
    total = float((seen * times).sum())
    return float(np.log(total) - (seen * times * values).sum() / total)


def bigram_counts(ids: NDArray[np.integer]) -> NDArray[np.int64]:
    """Counts of pairs of successive tokens among the first `COUNTED` of a text."""
    tokens = np.asarray(ids[:COUNTED], dtype=np.int64)
    symbols = int(tokens.max()) + 1
    pairs = tokens[:-1] * symbols + tokens[1:]
    if symbols**2 <= COUNTED:  # much faster than sorting them
        return np.bincount(pairs).astype(np.int64)
    return np.unique(pairs, return_counts=True)[1].astype(np.int64)


def unigram_losses(counts: NDArray[np.integer], tokens: NDArray[np.integer]) -> NDArray[np.float64]:
    """[T]: nats of `tokens` [T] under add-one-smoothed counts [V]."""
    smoothed = np.asarray(counts, dtype=np.float64) + 1
    losses: NDArray[np.float64] = (np.log(smoothed.sum()) - np.log(smoothed))[tokens]
    return losses


def half_lengths(longest: int) -> list[int]:
    """The lengths L = 2, 4, 8, ... whose contexts up to 2 L - 1 are within `longest`."""
    lengths = []
    length = FIRST_LENGTH
    while 2 * length - 1 <= longest:
        lengths.append(length)
        length *= 2
    return lengths


def informations(
    means: NDArray[np.float64], start: Start | None, is_corrected: bool
) -> NDArray[np.float64]:
    """[K, 1 + N]: I(L) at each of `half_lengths`.

    Args:
        means: [D, 1 + N], m(1) to m(D).
        start: None to begin the sum at j = 1.
    """
    empty = np.zeros(means.shape[1]) if start is None else start.empty
    first = np.concatenate([empty[None], means])
    running = np.concatenate([np.zeros((1, means.shape[1])), np.cumsum(first, axis=0)])
    found = []
    for length in half_lengths(len(means)):
        alone = running[length]
        given = running[2 * length] - running[length]
        if start is None:
            given = given - first[length]  # the term of j = 0, left out on both sides
        elif is_corrected:
            alone = alone + CORRECTION * (start.bigram - first[0] - first[1])
        found.append(alone - given)
    return np.stack(found)


def exponents(model: str, means: NDArray[np.float64], start: Start | None) -> Iterator[Exponent]:
    """The exponent from the model's losses alone, then with the published correction.

    Args:
        means: [D, 1 + N], m(1) to m(D).

    Raises:
        NoExponentError: with fewer than three lengths.
    """
    lengths = half_lengths(len(means))
    if len(lengths) < FEWEST_LENGTHS:
        raise NoExponentError(
            f"contexts 1 to {len(means)} give {len(lengths)} lengths, and a fit needs "
            f"{FEWEST_LENGTHS}"
        )
    yield _exponent(model, lengths, informations(means, start, is_corrected=False), False)
    if start is not None:
        yield _exponent(model, lengths, informations(means, start, is_corrected=True), True)


def _exponent(
    model: str, lengths: list[int], nats: NDArray[np.float64], is_corrected: bool
) -> Exponent:
    """The straight line through log I at log L: [K, 1 + N] of them."""
    values = intervals(nats)
    way: Literal["model", "corrected"] = "corrected" if is_corrected else "model"
    positive = np.min(nats, axis=0) > 0
    if not positive[0] or positive.mean() < LEAST_SHARE:
        return Exponent(
            model=model,
            way=way,
            lengths=tuple(lengths),
            nats=values,
            exponent=None,
            factor=None,
            r_squared=None,
        )
    with np.errstate(invalid="ignore", divide="ignore"):
        heights = np.log(np.where(nats > 0, nats, np.nan))
    across = np.log(lengths) - np.log(lengths).mean()
    slope = across @ heights / (across @ across)
    level = heights.mean(axis=0) - slope * np.log(lengths).mean()
    own = heights[:, 0]
    residuals = own - level[0] - slope[0] * np.log(lengths)
    deviations = own - own.mean()
    spread = float(deviations @ deviations)
    r_squared = 1 - float(residuals @ residuals) / spread if spread else 1.0
    is_power = r_squared >= LEAST_R_SQUARED
    return Exponent(
        model=model,
        way=way,
        lengths=tuple(lengths),
        nats=values,
        exponent=interval(slope) if is_power else None,
        factor=interval(np.exp(level)) if is_power else None,
        r_squared=r_squared,
    )
