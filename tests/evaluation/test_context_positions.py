"""Positions: even stretches that let windows be shared, all over the split."""

import itertools
import math

import numpy as np
import pytest

from txlbench.errors import UserError
from txlbench.evaluation.context_losses import Windows
from txlbench.evaluation.context_positions import USUAL_COUNT, Positions, choose_positions

CONTEXTS = [(3,), (4, 8, 12), (2, 5, 11), (16, 48), (7, 8)]
CASES = [
    case
    for case in itertools.product([50, 101, 1000], CONTEXTS, [1, 2, 7, 30])
    if case[2] <= case[0] - case[1][-1]
]


def fits(length, longest, step, count):
    return longest + step * (count - 1) <= length - 1


@pytest.mark.parametrize(("length", "contexts", "count"), CASES, ids=str)
def test_the_step_is_the_largest_that_shares_windows_and_fits(length, contexts, count):
    found = choose_positions(length, contexts, count)
    assert len(found.array) == count
    assert found.array[0] >= contexts[-1]
    assert found.array[-1] < length
    assert (np.diff(found.array) > 0).all()
    shared = math.gcd(*(a - b for a, b in itertools.combinations(contexts, 2)))
    allowed = [s for s in range(1, length) if shared % s == 0]
    largest = max(s for s in allowed if fits(length, contexts[-1], s, count) or s == 1)
    assert count == 1 or found.step == largest


def test_all_tokens_that_have_the_context_can_be_asked_for_and_no_more():
    assert choose_positions(20, (4, 8), 12).array.tolist() == list(range(8, 20))
    with pytest.raises(UserError, match=r"--tokens 13: only 12 tokens .* 8 predecessors; .* 12$"):
        choose_positions(20, (4, 8), 13)


@pytest.mark.parametrize("length", [0, 1, 7, 8])
def test_contexts_beyond_the_split_are_refused(length):
    with pytest.raises(UserError, match=rf"--contexts: 8 is beyond the split, which has {length} "):
        choose_positions(length, (4, 8), 1)


@pytest.mark.parametrize(("contexts", "step"), [((32, 96, 160), 1), ((10, 40, 70), 15), ((5,), 9)])
def test_the_step_does_not_keep_time_with_the_text(contexts, step):
    """Period 4: steps 64, 30 and 10 would meet every second or only one kind of token."""
    length = 100 * (step + 1) + contexts[-1]
    found = choose_positions(length, contexts, 100, period=4)
    assert found.step == step
    assert set(found.array % 4) == {0, 1, 2, 3}


def test_without_a_number_as_many_are_taken_as_usual_or_as_there_are():
    assert choose_positions(100, (4, 8), None).count == 92
    assert choose_positions(10**6, (4, 8), None).count == USUAL_COUNT


@pytest.mark.parametrize("length", [20_000, 41_000, 320_000, 10**7])
def test_they_lie_all_over_the_split_in_stretches(length):
    """`--tokens 2000` of contexts 16 to 256 had scored the first tenth of 320,000 tokens."""
    found = choose_positions(length, range(16, 257, 16), 2000)
    array = found.array
    first_half = np.count_nonzero(array < (length + 256) / 2)
    assert 900 <= first_half <= 1100
    assert array[-1] >= length - 16 * 20
    parts = np.split(array, np.flatnonzero(np.diff(array) > found.step) + 1)
    assert all((np.diff(part) == found.step).all() for part in parts)
    assert {len(part) for part in parts} <= {2000 // len(parts), 2000 // len(parts) + 1}


@pytest.mark.parametrize("contexts", [(100, 200, 1000), (16, 32, 64), (32, 288), (7, 8)])
@pytest.mark.parametrize("count", [1, 200, 2000, 10_000])
def test_spreading_costs_at_most_a_tenth_more_windows(contexts, count):
    found = choose_positions(10**6, contexts, count)
    one = Positions(found.first, found.step, count)
    windows = [len(Windows.of(np.array(contexts), each.array)) for each in (found, one)]
    assert windows[0] <= windows[1] + count / 10
    if count >= 10_000:
        assert found.stretches > 10


def test_one_stretch_is_stored_under_the_name_that_it_always_had():
    assert choose_positions(2040, (16, 32), 2000).key == {"first": 32, "step": 1, "count": 2000}
    assert choose_positions(9000, (16, 32), 200).key["gap"] > 0
