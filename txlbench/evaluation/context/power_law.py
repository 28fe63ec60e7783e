"""The power law of context, m(c) = (alpha / c)^beta + gamma (Xiong et al. 2024, Figure 1).

The fit minimises the sum of squared residuals over the contexts, each of them counting alike. For
a given beta it is linear in c^-beta, so only beta is searched: on a grid, and then where the
derivative of the sum is 0. All resamples are fitted at once.

A curve is refused that has fewer than `FEWEST` contexts or spans less than `SPAN` times its
shortest, that does not fall (the interval of its gain includes 0) or rises again, whose fit ends at
the bounds of beta, or of which the fit explains less than .995, what Gemini 1.5's report gives of
its fits: then no power law describes it, and an exponent would mean nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.context.resampling import LEAST_SHARE, interval
from txlbench.records.context_schema import PowerLaw

FEWEST = 5
SPAN = 4
LEAST_R_SQUARED = 0.995
BOUNDS = (0.02, 4.0)
GRID = 256
STEPS = 14
"""Of the search within a grid cell, after which beta no longer changes."""
FARTHER = 4
"""Times the longest context to which the fit is extrapolated."""


class NoFitError(Exception):
    """A curve is no power law, or cannot tell; the message says why."""


@dataclass(frozen=True, eq=False)
class Fits:
    """Least-squares fits of K curves over C contexts: factor c^-beta + gamma.

    Attributes:
        beta, factor, gamma: [K]; NaN where the best beta is at a bound or the curve rises.
    """

    contexts: NDArray[np.float64]
    beta: NDArray[np.float64]
    factor: NDArray[np.float64]
    gamma: NDArray[np.float64]

    def at(self, contexts: NDArray[np.float64]) -> NDArray[np.float64]:
        """[K, C]: the fitted losses."""
        curves: NDArray[np.float64] = np.exp(-np.outer(self.beta, np.log(contexts)))
        return self.factor[:, None] * curves + self.gamma[:, None]

    @property
    def alpha(self) -> NDArray[np.float64]:
        """[K]: factor^(1 / beta), a context in tokens."""
        found: NDArray[np.float64] = np.exp(np.minimum(np.log(self.factor) / self.beta, 700.0))
        return found


def fit_curves(contexts: Sequence[int], losses: NDArray[np.float64]) -> Fits:
    """Fits each of the curves `losses` [K, C]."""
    where = np.asarray(contexts, dtype=np.float64)
    grid = np.geomspace(*BOUNDS, GRID)
    best = _explained(where, losses, grid).argmax(axis=0)
    is_inside = (best > 0) & (best < GRID - 1)
    inner = np.clip(best, 1, GRID - 2)
    beta = _root(partial(_slope, where, losses), grid[inner - 1], grid[inner + 1])
    factor, gamma = _linear(where, losses, beta)
    fails = ~is_inside | (factor <= 0)
    beta, factor, gamma = (np.where(fails, np.nan, each) for each in (beta, factor, gamma))
    return Fits(where, beta, factor, gamma)


def _explained(
    contexts: NDArray[np.float64], losses: NDArray[np.float64], grid: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[G, K]: sum of squares that the best fit with each exponent of a grid explains."""
    curves = np.exp(-np.outer(grid, np.log(contexts)))
    centred = curves - curves.mean(axis=1, keepdims=True)
    found: NDArray[np.float64] = (centred @ losses.T) ** 2
    return found / np.einsum("gc,gc->g", centred, centred)[:, None]


def _root(
    slope: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> NDArray[np.float64]:
    """[K]: where `slope` is 0 between `low` and `high` [K], by regula falsi (Illinois)."""
    at_low, at_high = slope(low), slope(high)
    found = (low + high) / 2
    for _ in range(STEPS):
        rise = at_high - at_low
        found = np.where(rise == 0, found, high - at_high * (high - low) / np.where(rise, rise, 1))
        found = np.clip(found, np.minimum(low, high), np.maximum(low, high))
        value = slope(found)
        crosses = value * at_high < 0
        low, at_low = np.where(crosses, high, low), np.where(crosses, at_high, at_low / 2)
        high, at_high = found, value
    return found


def _linear(
    contexts: NDArray[np.float64], losses: NDArray[np.float64], beta: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Factor and gamma [K] of the best fits with exponents `beta` [K]."""
    curves = np.exp(-np.outer(beta, np.log(contexts)))
    centred = curves - curves.mean(axis=1, keepdims=True)
    factor = np.einsum("kc,kc->k", centred, losses) / np.einsum("kc,kc->k", centred, centred)
    return factor, losses.mean(axis=1) - factor * curves.mean(axis=1)


def _slope(
    contexts: NDArray[np.float64], losses: NDArray[np.float64], beta: NDArray[np.float64]
) -> NDArray[np.float64]:
    """[K]: half the derivative by beta of the sum of squares, over the factor.

    At the best factor and gamma their derivatives are 0, so only c^-beta itself counts.
    """
    factor, gamma = _linear(contexts, losses, beta)
    curves = np.exp(-np.outer(beta, np.log(contexts)))
    residuals = losses - factor[:, None] * curves - gamma[:, None]
    found: NDArray[np.float64] = np.einsum("kc,kc,c->k", residuals, curves, np.log(contexts))
    return found


def power_law(model: str, contexts: Sequence[int], means: NDArray[np.float64]) -> PowerLaw:
    """The fit of one curve with mean losses [C, 1 + N].

    Raises:
        NoFitError: as the module says.
    """
    if len(contexts) < FEWEST or contexts[-1] < SPAN * contexts[0]:
        raise NoFitError(
            f"{len(contexts)} contexts from {contexts[0]} to {contexts[-1]}, and a fit needs "
            f"{FEWEST} over a factor of {SPAN}"
        )
    gain = interval(means[0] - means[-1])
    if gain.value <= 0 or (gain.low is not None and not gain.is_resolved):
        raise NoFitError("the loss does not fall from the first context to the last")
    least = int(means[:, 0].argmin())
    rise = interval(means[-1] - means[least])
    if rise.is_resolved:
        raise NoFitError(f"the loss rises again after context {contexts[least]}")
    fits = fit_curves(contexts, means.T)
    if np.isnan(fits.beta[0]):
        raise NoFitError(f"the best exponent is outside {BOUNDS[0]:g} to {BOUNDS[1]:g}")
    if np.isfinite(fits.beta).mean() < LEAST_SHARE:
        share = float(np.isnan(fits.beta).mean())
        raise NoFitError(f"the tokens do not resolve it: {share:.0%} of resamples have no fit")
    residuals = means[:, 0] - fits.at(fits.contexts)[0]
    deviations = means[:, 0] - means[:, 0].mean()
    r_squared = 1 - float(residuals @ residuals / (deviations @ deviations))
    if r_squared < LEAST_R_SQUARED:
        largest = int(np.abs(residuals).argmax())
        raise NoFitError(
            f"R² {r_squared:.3f} of the best fit, under {LEAST_R_SQUARED:g}; it is off by "
            f"{residuals[largest]:+.3f} nats at context {contexts[largest]}"
        )
    last, farther = fits.at(np.array([contexts[-1], FARTHER * contexts[-1]], np.float64)).T
    return PowerLaw(
        model=model,
        alpha=interval(fits.alpha),
        beta=interval(fits.beta),
        gamma=interval(fits.gamma),
        residuals=tuple(residuals.tolist()),
        r_squared=r_squared,
        four_times=interval(last - farther),
    )
