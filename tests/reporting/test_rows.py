"""Intervals over seeds."""

import statistics

import pytest

from txlbench.reporting.rows import Estimate, estimate

# Two-sided 95 % points of Student's t, from any printed table.
PRINTED = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 9: 2.262, 10: 2.228, 30: 2.042}


@pytest.mark.parametrize(("degrees", "expected"), PRINTED.items())
def test_quantiles_are_those_of_the_tables(degrees: int, expected: float) -> None:
    values = list(range(degrees + 1))
    found = estimate(values)
    assert found is not None
    error = statistics.stdev(values) / (degrees + 1) ** 0.5
    assert found.half_width == pytest.approx(expected * error, rel=5e-4)


def test_interval_of_three_seeds() -> None:
    found = estimate([1.0, 2.0, 3.0])
    assert found is not None
    assert (found.mean, found.n) == (2.0, 3)
    assert found.half_width == pytest.approx(4.3027 / 3**0.5, rel=1e-4)


def test_one_seed_has_no_interval() -> None:
    assert estimate([1.5]) == Estimate(1.5, None, 1)
    assert estimate([]) is None
