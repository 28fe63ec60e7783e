import numpy as np
import pytest

from tests.evaluation.context.made import group, losses_of
from txlbench.evaluation.context.resampling import (
    Resampling,
    context_lengths,
    interval,
)
from txlbench.evaluation.recl.metric import effective_context_length


@pytest.fixture
def one():
    return group(losses_of(np.random.default_rng(0), [[3, 2, 1.9]], tokens=1037), (1, 2, 3))


def test_a_resampled_mean_is_that_of_its_tokens(one):
    """One token after another: each as often as its block was drawn."""
    resampling = Resampling.of(one.losses, one.positions, 0)
    values, chosen = one.losses[0, 0], one.losses[0, 1] > 2
    means, some = resampling.means(values), resampling.means(values, chosen)
    ends = [*resampling.starts[1:].tolist(), len(values)]
    for row in (0, 1, 500, 1000):
        total = number = total_chosen = number_chosen = 0.0
        for block, (start, end) in enumerate(zip(resampling.starts, ends, strict=True)):
            times = resampling.copies[row, block]
            for token in range(start, end):
                total, number = total + times * values[token], number + times
                if chosen[token]:
                    total_chosen += times * values[token]
                    number_chosen += times
        assert means[row] == pytest.approx(total / number, abs=1e-9)
        assert some[row] == pytest.approx(total_chosen / number_chosen, abs=1e-9)


def test_the_first_line_is_the_tokens_as_they_are(one):
    resampling = Resampling.of(one.losses, one.positions, 0)
    assert resampling.means(one.losses[0])[:, 0] == pytest.approx(one.losses[0].mean(axis=1))
    assert resampling.blocks.count == 50


def test_draws_are_the_same_for_a_seed(one):
    drawn = [Resampling.of(one.losses, one.positions, seed).copies for seed in (3, 3, 4)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


def test_too_few_tokens_leave_the_value_without_an_interval():
    few = group(losses_of(np.random.default_rng(0), [[3, 2]], tokens=40), (1, 2))
    resampling = Resampling.of(few.losses, few.positions, 0)
    assert "too few tokens: 40" in resampling.problem
    found = interval(resampling.means(few.losses[0, 0]))
    assert found.value == pytest.approx(few.losses[0, 0].mean())
    assert (found.low, found.high, found.is_resolved) == (None, None, False)


def test_a_measure_that_many_resamples_lack_has_no_interval():
    values = np.arange(1001.0)
    values[1:60] = np.nan
    assert interval(values).low is None
    values[1:60], values[1:40] = 1.0, np.nan
    assert interval(values).low is not None


@pytest.mark.parametrize("threshold", [0.01, 0.05, 0.3])
def test_context_lengths_are_those_of_recl(threshold):
    contexts = (1, 2, 4, 8, 16, 32)
    random = np.random.default_rng(1)
    curves = 3 + np.cumsum(random.normal(-0.05, 0.05, (6, 50)), axis=0)
    expected = [effective_context_length(curve[:, None], contexts, threshold) for curve in curves.T]
    assert context_lengths(curves, contexts, threshold).tolist() == expected
