"""How often a step counts that is there, and one that is not: what docs/recl.md promises.

The tables there are of `tests/benchmarks/recl_power.py`; here is a small version of it.
"""

import numpy as np
import pytest

from tests.evaluation.recl.simulated import rates

FLIPS = 999
TRIALS = 200
"""Twice the standard deviation of a rate of .05 is .03, of one of .5 .07."""


@pytest.mark.parametrize("kind", ["independent", "autoregressive .5", "lognormal"])
def test_level_of_recl_above_the_null(kind):
    """Without effect a step counts in at most 5 % of the trials, noise included 8 %."""
    found = rates(2000, 0.0, TRIALS, kind, flips=FLIPS)
    assert found.refused <= 0.05
    assert (found.above_null <= 0.08).all()


@pytest.mark.parametrize("kind", ["independent", "autoregressive .5"])
def test_level_of_the_test_alone(kind):
    found = rates(2000, 0.0, TRIALS, kind, flips=FLIPS)
    assert (found.by_p <= 0.08).all()
    assert (found.by_p >= 0.01).all()


def test_noise_that_64_tokens_share_is_refused_or_tested_at_its_level():
    """2,000 tokens are 31 independent ones; blocks of 16 found an effect in 20 % of the trials."""
    assert rates(2000, 0.0, 50, "shared by 64", flips=FLIPS).refused > 0.9
    found = rates(20_000, 0.0, 80, "shared by 64", flips=FLIPS)
    assert found.refused <= 0.2
    assert (found.by_p <= 0.1).all()


@pytest.mark.parametrize(
    ("gain", "expected"),
    [(0.01, [0.27, 0.5, 0.5]), (0.015, [0.5, 0.85, 0.93]), (0.02, [0.66, 1, 1])],
)
def test_power_with_2000_tokens(gain, expected):
    found = rates(2000, gain, TRIALS, flips=FLIPS).above_null
    assert found == pytest.approx(np.array(expected), abs=0.1)
