"""Blocks reach over 16 tokens of text, whatever the spacing."""

import numpy as np
import pytest

from txlbench.errors import UserError
from txlbench.evaluation.recl.blocks import blocks_of


@pytest.mark.parametrize(
    ("spacing", "length"), [(1, 16), (2, 8), (3, 6), (8, 2), (15, 2), (16, 1), (500, 1)]
)
def test_length_follows_the_spacing(spacing, length):
    blocks = blocks_of(7 + spacing * np.arange(1000))
    assert blocks.length == length
    assert blocks.sizes[:-1].tolist() == [length] * (blocks.count - 1)
    assert blocks.sizes.sum() == 1000
    assert (np.diff(blocks.index) >= 0).all()


def test_uneven_positions_count_as_their_closest_pair():
    assert blocks_of(np.array([0, 4, *range(100, 10000, 50)])).length == 4


@pytest.mark.parametrize(("positions", "is_enough"), [(784, False), (785, True)])
def test_fifty_blocks_are_needed(positions, is_enough):
    if is_enough:
        assert blocks_of(np.arange(positions)).count == 50
        return
    with pytest.raises(UserError, match=r"too few tokens: 784 make 49 blocks of 16.*least 785"):
        blocks_of(np.arange(positions))


def test_one_token_is_too_few():
    with pytest.raises(UserError, match="too few tokens"):
        blocks_of(np.array([5]))
