"""Best and shortest attention length, with ties and at the edge of the tolerance."""

import pytest

from txlbench.evaluation.attention_length import best_length, shortest_length

LOSSES = {16: 1.30, 32: 1.25, 48: 1.10, 64: 1.10, 80: 1.11}


def test_best_is_the_lowest_loss_and_the_shorter_of_equals():
    assert best_length(LOSSES) == 48
    assert best_length(dict(reversed(LOSSES.items()))) == 48


@pytest.mark.parametrize(
    ("tolerance", "length"), [(0.0, 48), (0.149, 48), (0.151, 32), (0.2001, 16), (10.0, 16)]
)
def test_shortest_is_within_the_tolerance_of_the_lowest(tolerance, length):
    assert shortest_length(LOSSES, tolerance) == length
    assert shortest_length(dict(reversed(LOSSES.items())), tolerance) == length


def test_a_loss_at_the_very_edge_of_the_tolerance_counts_as_equal():
    assert shortest_length({8: 1.5, 16: 1.0}, 0.5) == 8


def test_a_dip_between_worse_lengths_is_found():
    """The first length within the tolerance counts, even if a longer one is worse."""
    assert shortest_length({8: 1.004, 16: 1.3, 24: 1.0}, 0.005) == 8
    assert best_length({8: 1.004, 16: 1.3, 24: 1.0}) == 24


def test_one_length_is_both():
    assert best_length({8: 2.0}) == shortest_length({8: 2.0}, 0.0) == 8
