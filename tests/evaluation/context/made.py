"""Losses with a known truth: curves, classes, copies and key tokens that are put into them."""

import numpy as np

from txlbench.evaluation.context.resampling import Resampling
from txlbench.evaluation.recl.metric import ModelGroup

SIMULATIONS = 200
"""Twice the standard deviation of a rate of .95 is .03."""
RATES = (0.9, 0.99)
"""What the coverage of an interval of 95 % may be."""


def group(losses, contexts, longest=None):
    """A group of [M, C, T] losses of successive tokens."""
    models, _, tokens = losses.shape
    names = tuple("abcdefgh"[:models])
    positions = 1000 + np.arange(tokens)
    return ModelGroup(names, losses, tuple(contexts), positions, longest or (None,) * models)


def losses_of(random, curves, tokens=1000, noise=0.3):
    """[M, C, T]: tokens of different hardness that gain differently, with means `curves` [M, C]."""
    curves = np.asarray(curves, dtype=float)
    hardness = random.gamma(2.0, 0.5, tokens)  # of mean 1
    eager = random.gamma(4.0, 0.25, tokens)  # of mean 1
    least = curves.min(axis=1, keepdims=True)
    clean = least[..., None] * hardness + (curves - least)[..., None] * eager
    return clean + noise * random.standard_normal(clean.shape)


def resampling_of(one, seed=0):
    return Resampling.of(one.losses, one.positions, seed)


def holds(found, truth):
    """Whether an interval covers the truth."""
    assert found.low is not None
    assert found.high is not None
    return found.low <= truth <= found.high


def simulated(measure, simulations=SIMULATIONS):
    """[S, ...]: what `measure` says of each simulation, given its random numbers."""
    return np.array([measure(np.random.default_rng(seed)) for seed in range(simulations)])


def assert_nominal(covered):
    """Coverage [S, K] of each of K measures is as it should be."""
    rates = np.mean(covered, axis=0)
    assert np.all(rates >= RATES[0]), rates
    assert np.all(rates <= RATES[1]), rates
