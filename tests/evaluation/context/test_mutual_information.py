import math
from collections import Counter

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
from txlbench.evaluation.context.mutual_information import (
    COUNTED,
    NoExponentError,
    Start,
    bigram_counts,
    entropy,
    exponents,
    half_lengths,
    informations,
    unigram_losses,
)

RATE, FACTOR, POWER = 1.0, 2.0, 0.4
"""sum of m(j) over j < L is RATE L + FACTOR L^POWER, so that I(L) is a power of L."""


def curve(last):
    """m(0) to m(last)."""
    ends = np.arange(last + 2, dtype=float)
    return RATE + FACTOR * np.diff(ends**POWER)


def by_definition(curve, length, bigram=None):
    """I(L) term after term; the first two are mixed as published."""
    own = [curve[j] for j in range(length)]
    if bigram is not None:
        own[0], own[1] = 0.0, (4 * bigram + own[0] + own[1]) / 5
    return math.fsum(own) - math.fsum(curve[length + j] for j in range(length))


@pytest.mark.parametrize("is_corrected", [False, True])
def test_information_is_that_of_the_definition(is_corrected):
    random = np.random.default_rng(0)
    losses = 3 + random.standard_normal(40)
    start = Start(losses[:1], 5.5)
    found = informations(losses[1:, None], start, is_corrected)
    for length, value in zip(half_lengths(39), found[:, 0], strict=True):
        expected = by_definition(losses, length, 5.5 if is_corrected else None)
        assert value == pytest.approx(expected, abs=1e-9)


def test_without_a_text_the_terms_of_the_empty_context_are_left_out():
    losses = 3 + np.random.default_rng(0).standard_normal(16)
    found = informations(losses[1:, None], None, is_corrected=False)
    for length, value in zip(half_lengths(15), found[:, 0], strict=True):
        expected = math.fsum(losses[j] - losses[length + j] for j in range(1, length))
        assert value == pytest.approx(expected, abs=1e-9)


def test_the_exponent_is_the_slope_of_a_straight_line():
    random = np.random.default_rng(2)
    losses = curve(63) + 0.01 * random.standard_normal(64)
    (found, _) = exponents("a", losses[1:, None], Start(losses[:1], 4.0))
    x = [math.log(length) for length in found.lengths]
    y = [math.log(by_definition(losses, length)) for length in found.lengths]
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    up = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    slope = up / math.fsum((a - mean_x) ** 2 for a in x)
    assert found.exponent.value == pytest.approx(slope, abs=1e-9)
    assert found.factor.value == pytest.approx(math.exp(mean_y - slope * mean_x), abs=1e-9)
    assert found.lengths == (2, 4, 8, 16, 32)


def test_entropy_is_grassbergers():
    """G(1) = psi(1) - 1/2 [psi(1) - psi(1/2)] = -gamma - ln 2, G(2) = G(1) + 2 and so on."""
    euler = 0.5772156649015329
    g = {1: -euler - math.log(2)}
    g[2] = g[3] = g[1] + 2
    g[4] = g[5] = g[3] + 2 / 3
    counts = [1, 1, 2, 3, 5, 4, 0]
    expected = math.log(16) - sum(n * g[n] for n in counts if n) / 16
    assert entropy(np.array(counts)) == pytest.approx(expected, abs=1e-9)


def test_entropy_of_many_draws_is_the_true_one():
    share = np.array([0.5, 0.25, 0.125, 0.125])
    counts = np.random.default_rng(0).multinomial(100_000, share)
    assert entropy(counts) == pytest.approx(1.75 * math.log(2), abs=0.01)


@pytest.mark.parametrize("symbols", [5, 1 << 13])
def test_pairs_are_counted(symbols):
    ids = np.random.default_rng(0).integers(symbols, size=2000)
    expected = Counter(zip(ids[:-1].tolist(), ids[1:].tolist(), strict=True))
    assert symbols**2 > COUNTED or symbols == 5
    found = bigram_counts(ids)
    assert sorted(found[found > 0].tolist()) == sorted(expected.values())


def test_unigram_losses_are_smoothed_by_one():
    found = unigram_losses(np.array([3, 0, 1]), np.array([0, 1, 2, 0]))
    assert found == pytest.approx(-np.log([4 / 7, 1 / 7, 2 / 7, 4 / 7]), abs=1e-12)


def measured(random, truth, tokens=1000):
    """As of a text whose unigram loss is m(0) and whose bigram entropy is m(0) + m(1)."""
    one = group(losses_of(random, [truth], tokens), range(len(truth)))
    means = Means.of(one, resampling_of(one)).array[0]
    return list(exponents("a", means[1:], Start(means[0], float(truth[0] + truth[1]))))


@pytest.mark.full
def test_intervals_cover_the_truth_at_their_rate():
    truth = curve(31)

    def covered(random):
        alone, corrected = measured(random, truth)
        return (
            holds(alone.exponent, POWER),
            holds(alone.nats[-1], by_definition(truth, 16)),
            holds(corrected.exponent, POWER),
            holds(corrected.nats[0], by_definition(truth, 2)),
        )

    assert_nominal(simulated(covered))


def test_what_does_not_grow_has_no_exponent():
    flat = np.concatenate([[5.0, 3.0], np.full(30, 2.0)])
    (found, _) = measured(np.random.default_rng(0), flat)
    assert found.exponent is None
    assert found.r_squared < 0.95
    (found, _) = measured(np.random.default_rng(0), np.arange(1.0, 33.0))
    assert (found.exponent, found.r_squared) == (None, None)
    assert found.nats[0].value < 0
    with pytest.raises(NoExponentError, match="2 lengths"):
        measured(np.random.default_rng(0), curve(8))


def test_noise_alone_gives_no_exponent():
    def claimed(random):
        (found, _) = measured(random, np.full(32, 2.0))
        return found.exponent is not None

    assert simulated(claimed, 100).mean() <= 0.1
