"""Models scored on different things are refused, saying what differs."""

from dataclasses import replace

import numpy as np
import pytest

from txlbench.errors import UserError
from txlbench.records.agreement import brief, check_agreement, check_contexts
from txlbench.records.loss_file import LossFile

ONE = LossFile(
    np.zeros((2, 4), dtype=np.float32),
    np.array([16, 32]),
    np.arange(4),
    name="one",
    corpus="aa",
    split="test",
    vocabulary="vv",
)
OTHER = replace(ONE, name="other")


def test_equal_files_agree():
    check_agreement([ONE, OTHER, ONE])
    check_agreement([ONE])


@pytest.mark.parametrize("field", ["corpus", "split", "vocabulary"])
def test_what_is_not_given_is_not_compared(field):
    check_agreement([ONE, replace(OTHER, **{field: None}), ONE])


@pytest.mark.parametrize("field", ["corpus", "split", "vocabulary"])
def test_what_two_files_say_must_be_equal_though_the_first_says_nothing(field):
    unsaid = replace(ONE, **{field: None})
    third = replace(ONE, name="third", **{field: "zz"})
    with pytest.raises(UserError, match=f"third: {field} 'zz', but '.*' in other"):
        check_agreement([unsaid, OTHER, third])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"contexts": np.array([16, 48])}, "other: contexts 16, 48, but 16, 32 in one"),
        ({"positions": np.arange(3)}, "other: 3 positions, but 4 in one"),
        (
            {"positions": np.array([0, 1, 7, 9])},
            "other: 2 of 4 positions differ, the first is 7, but 2 in one",
        ),
    ],
)
def test_arrays_that_differ(changes, words):
    with pytest.raises(UserError) as caught:
        check_agreement([ONE, replace(OTHER, **changes)])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_groups_need_the_same_contexts_only():
    check_contexts([ONE, replace(OTHER, positions=np.arange(9), corpus="zz")])
    with pytest.raises(UserError, match="other: contexts 8, 16, but 16, 32 in one, of another gro"):
        check_contexts([ONE, replace(OTHER, contexts=np.array([8, 16]))])


def test_many_numbers_are_named_briefly():
    assert brief(np.array([1, 2])) == "1, 2"
    assert brief(np.arange(0, 100)) == "0 to 99 (100 of them)"
