"""Losses with a known truth: as of words, with true gains and noise between contexts."""

import numpy as np

NOISE = 0.1
"""Standard deviation (nats) of each loss at each context."""


def losses(random, tokens, gains, models=1, noise=NOISE):
    """[M, C, T]: every token loses the same part of its loss, so that over all tokens
    perplexity falls by `gains` [S] from step to step."""
    hardness = random.gamma(1.2, 2.8, tokens)
    means = hardness.mean() + np.concatenate([[0.0], np.cumsum(np.log1p(-np.asarray(gains)))])
    clean = hardness * (means / hardness.mean())[:, None]
    return clean + noise * random.standard_normal((models, len(means), tokens))


def shifted(random, tokens, gain, noise=NOISE):
    """[2, T]: two contexts, of which the longer lowers every loss alike, by a relative `gain`."""
    hardness = 1.0 + random.gamma(1.2, 2.8, tokens)
    truth = np.stack([hardness, hardness + np.log1p(-gain)])
    return truth + noise * random.standard_normal(truth.shape)
