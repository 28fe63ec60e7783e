"""Positions: an even grid that lets windows be shared, over as much of the split as fits."""

import itertools
import math

import pytest

from txlbench.errors import UserError
from txlbench.evaluation.context_positions import USUAL_COUNT, choose_positions

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
