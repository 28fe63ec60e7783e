"""Sums of losses: every target has the same weight, whatever batch it came in."""

import numpy as np
import pytest

from txlbench.evaluation.metrics import LossSum


def test_batches_of_any_size_weigh_by_their_targets():
    total = LossSum(8)
    total.add(np.full(7, 1.0, dtype=np.float32), np.arange(7))
    total.add(np.array([9.0], dtype=np.float32), np.array([0]))
    assert total.tokens == 8
    assert total.mean == pytest.approx((7 * 1 + 9) / 8)


def test_equal_positions_in_one_batch_all_count():
    total = LossSum(2)
    total.add(np.array([1.0, 2.0, 6.0]), np.array([1, 1, 1]))
    assert total.by_position() == [None, 3.0]


def test_sums_stay_exact_over_many_small_losses():
    """In float32 a sum over millions of targets would drift."""
    total = LossSum(1)
    for _ in range(64):
        total.add(np.full(2**15, 1 + 2**-20, dtype=np.float32), np.zeros(2**15, dtype=np.int64))
    assert total.mean == pytest.approx(1 + 2**-20, abs=1e-12)
