"""Means over seeds with 95 % t-intervals, and differences paired by seed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds.

    Attributes:
        mean: in the unit of the values.
        half_width: of the 95 % t-interval; None for a single value, which has no interval.
        n: number of seeds.
    """

    mean: float
    half_width: float | None
    n: int

    @property
    def is_resolved(self) -> bool:
        """Whether the interval leaves out 0: only then a difference has a sign."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def estimate(values: Sequence[float]) -> Estimate | None:
    """Mean and interval of `values`, None if there are none."""
    n = len(values)
    if n == 0:
        return None
    mean = math.fsum(values) / n
    if n == 1:
        return Estimate(mean, None, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return Estimate(mean, t_quantile(n - 1) * math.sqrt(variance / n), n)


def paired_difference(
    values: Mapping[int, float], reference: Mapping[int, float]
) -> Estimate | None:
    """values - reference over the seeds that both have; None for fewer than two of them."""
    seeds = sorted(values.keys() & reference.keys())
    if len(seeds) < 2:
        return None
    return estimate([values[seed] - reference[seed] for seed in seeds])


@cache
def t_quantile(degrees: int) -> float:
    """t with P(|T| <= t) = 95 % for Student's distribution with `degrees` of freedom."""
    low, high = 0.0, 100.0
    for _ in range(100):
        middle = (low + high) / 2
        if _central_probability(middle, degrees) < CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def _central_probability(t: float, degrees: int) -> float:
    """P(|T| <= t), the finite series of Abramowitz and Stegun 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power + 1) / (power + 2)
    series = math.sin(angle) * total
    return 2 / math.pi * (angle + series) if odd else series
