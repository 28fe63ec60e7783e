"""Losses with a known truth: as of words, with true gains and noise between contexts."""

from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from txlbench.errors import UserError
from txlbench.evaluation.recl.null import LEVEL, blocks_of, draw_signs, measure, net_gains

NOISE = 0.1
"""Standard deviation (nats) of each loss at each context."""
SHARES = (0.1, 0.5, 1.0)
THRESHOLD = 0.01


def losses(random, tokens, gains, models=1, noise=NOISE):
    """[M, C, T]: every token loses the same part of its loss, so that over all tokens
    perplexity falls by `gains` [S] from step to step."""
    hardness = random.gamma(1.2, 2.8, tokens)
    means = hardness.mean() + np.concatenate([[0.0], np.cumsum(np.log1p(-np.asarray(gains)))])
    clean = hardness * (means / hardness.mean())[:, None]
    return clean + noise * random.standard_normal((models, len(means), tokens))


def shifted(random, tokens, gain, noise=NOISE, kind="independent"):
    """[2, T]: two contexts, of which the longer lowers every loss alike, by a relative `gain`."""
    hardness = 1.0 + random.gamma(1.2, 2.8, tokens)
    truth = np.stack([hardness, hardness + np.log1p(-gain)])
    return truth + noise * NOISES[kind](random, tokens)


def correlated(random, shape, phi):
    """Standard normal noise whose last axis is an autoregressive series of parameter `phi`."""
    noise = random.standard_normal(shape)
    noise[..., 1:] *= (1 - phi**2) ** 0.5
    return lfilter([1.0], [1.0, -phi], noise, axis=-1)


def shared(random, tokens, width):
    """[2, T]: standard normal noise that `width` neighbours have in common."""
    offset = random.integers(width)
    noise = random.standard_normal((2, tokens // width + 2))
    return np.repeat(noise, width, axis=1)[:, offset : offset + tokens]


def skewed(difference):
    """[2, T]: half of a difference of variance 2 and mean 0 to either context."""
    return np.stack([difference, -difference]) / 2**0.5


def lognormal(random, tokens):
    """[T]: variance 1, mean 0, skewness 6.2."""
    return (random.lognormal(size=tokens) - np.e**0.5) / (np.e * (np.e - 1)) ** 0.5


NOISES = {
    "independent": lambda random, tokens: random.standard_normal((2, tokens)),
    "autoregressive .5": lambda random, tokens: correlated(random, (2, tokens), 0.5),
    "autoregressive .9": lambda random, tokens: correlated(random, (2, tokens), 0.9),
    "shared by 16": lambda random, tokens: shared(random, tokens, 16),
    "shared by 64": lambda random, tokens: shared(random, tokens, 64),
    "a tenth of it shared by 256": lambda random, tokens: (
        random.standard_normal((2, tokens)) + 0.1 * shared(random, tokens, 256)
    ),
    "exponential": lambda random, tokens: skewed(random.exponential(size=tokens) - 1),
    "minus exponential": lambda random, tokens: skewed(1 - random.exponential(size=tokens)),
    "lognormal": lambda random, tokens: skewed(lognormal(random, tokens)),
    "minus lognormal": lambda random, tokens: skewed(-lognormal(random, tokens)),
}
"""[2, T] noise of variance 1 of both contexts, by name; differences of the last four are skewed."""


@dataclass(frozen=True)
class Rates:
    """How often a step counts, at each share [R].

    Attributes:
        refused: the part of the trials that had too few tokens; the others are counted.
        by_p: by the sign-flip test alone.
        above_null: gain and net gain reach the threshold, and p <= .05: RECL above the null.
        by_interval: the one-sided 95 % interval of the net gain lies above the threshold.
    """

    refused: float
    by_p: np.ndarray
    above_null: np.ndarray
    by_interval: np.ndarray


def rates(tokens, gain, trials, kind="independent", flips=9_999):
    """What three rules find of one step in simulated losses."""
    signs = draw_signs(np.random.default_rng(0), 50, flips)
    counted = []
    for seed in range(trials):
        pair = shifted(np.random.default_rng([tokens, seed]), tokens, gain, kind=kind)
        try:
            blocks = blocks_of(np.arange(tokens), pair[None])
        except UserError:
            continue
        found = measure(pair[None], SHARES, blocks, signs)
        lowered = pair + np.log1p([[-THRESHOLD], [0.0]])  # the same test of d(t) less the threshold
        counted.append(
            [
                found.p[0, :, 0] <= LEVEL,
                found.counts_above_null(THRESHOLD)[0, :, 0],
                net_gains(lowered, SHARES, blocks, signs).p[:, 0] <= LEVEL,
            ]
        )
    mean = np.mean(counted, axis=0) if counted else np.full((3, len(SHARES)), np.nan)
    return Rates(1 - len(counted) / trials, *mean)
