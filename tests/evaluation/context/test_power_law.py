import math

import numpy as np
import pytest

from tests.evaluation.context.made import (
    assert_nominal,
    group,
    holds,
    losses_of,
    resampling_of,
    simulated,
)
from txlbench.evaluation.context.curve import Means
from txlbench.evaluation.context.power_law import NoFitError, fit_curves, power_law

CONTEXTS = (25, 50, 100, 200, 400, 800)
ALPHA, BETA, GAMMA = 40.0, 0.6, 2.0
TRUTH = (ALPHA / np.array(CONTEXTS)) ** BETA + GAMMA


def by_newton(contexts, losses):
    """Least squares in plain Python: the factor and gamma of the best line in c^-beta, and beta by
    bisection of the derivative of the sum of squares, taken numerically."""

    def line(beta):
        curve = [context**-beta for context in contexts]
        number, mean_x = len(curve), math.fsum(curve) / len(curve)
        mean_y = math.fsum(losses) / number
        up = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(curve, losses, strict=True))
        factor = up / math.fsum((x - mean_x) ** 2 for x in curve)
        return factor, mean_y - factor * mean_x

    def slope(beta):
        factor, gamma = line(beta)
        return math.fsum(
            (y - factor * c**-beta - gamma) * factor * c**-beta * math.log(c)
            for c, y in zip(contexts, losses, strict=True)
        )

    low, high = 0.05, 3.0
    assert slope(low) < 0 < slope(high)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low, *line(low))


def sum_of_squares(contexts, losses, beta, factor, gamma):
    return math.fsum(
        (y - factor * c**-beta - gamma) ** 2 for c, y in zip(contexts, losses, strict=True)
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_fit_is_the_least_squares_of_another_program(seed):
    losses = TRUTH + 0.01 * np.random.default_rng(seed).standard_normal(len(CONTEXTS))
    beta, factor, gamma = by_newton(CONTEXTS, losses.tolist())
    fits = fit_curves(CONTEXTS, losses[None])
    assert fits.beta[0] == pytest.approx(beta, abs=1e-9)
    assert fits.gamma[0] == pytest.approx(gamma, abs=1e-9)
    assert fits.factor[0] == pytest.approx(factor, rel=1e-9)
    assert fits.alpha[0] == pytest.approx(factor ** (1 / beta), rel=1e-8)
    least = sum_of_squares(CONTEXTS, losses, beta, factor, gamma)
    for change in np.random.default_rng(seed).normal(scale=0.05, size=(200, 3)):
        other = (beta + change[0], factor * (1 + change[1]), gamma + change[2])
        assert sum_of_squares(CONTEXTS, losses, *other) > least


def test_an_exact_power_law_is_found():
    fits = fit_curves(CONTEXTS, TRUTH[None])
    found = (fits.alpha[0], fits.beta[0], fits.gamma[0])
    assert found == pytest.approx((ALPHA, BETA, GAMMA), rel=1e-9)


def measured(random, curve, contexts=CONTEXTS, tokens=1000):
    one = group(losses_of(random, [curve], tokens), contexts)
    return power_law("a", contexts, Means.of(one, resampling_of(one)).array[0])


@pytest.mark.full
def test_intervals_cover_the_truth_at_their_rate():
    farther = (ALPHA / 800) ** BETA - (ALPHA / 3200) ** BETA

    def covered(random):
        law = measured(random, TRUTH)
        return (
            holds(law.alpha, ALPHA),
            holds(law.beta, BETA),
            holds(law.gamma, GAMMA),
            holds(law.four_times, farther),
        )

    assert_nominal(simulated(covered))


def test_noise_alone_is_refused():
    def refused(random):
        try:
            measured(random, np.full(len(CONTEXTS), 2.0))
        except NoFitError:
            return True
        return False

    assert simulated(refused, 100).mean() >= 0.9


@pytest.mark.parametrize(
    ("curve", "contexts", "why"),
    [
        (TRUTH[:4], CONTEXTS[:4], "4 contexts from 25 to 200, and a fit needs 5"),
        (TRUTH[:5], (100, 150, 200, 250, 300), "over a factor of 4"),
        (TRUTH[::-1], CONTEXTS, "does not fall"),
        ([3, 2.5, 2.1, 2.0, 2.2, 2.4], CONTEXTS, "rises again after context 200"),
        ([3, 3, 3, 3, 3, 2], CONTEXTS, "outside"),
        ([3, 2.9, 2.1, 2, 2, 2], CONTEXTS, "of the best fit, under"),
    ],
)
def test_what_is_no_power_law_is_refused_with_the_reason(curve, contexts, why):
    with pytest.raises(NoFitError, match=why):
        measured(np.random.default_rng(0), curve, contexts)
