"""The unigram loss is the mean surprise under smoothed training frequencies."""

import math

import numpy as np
import pytest

from txlbench.data.source import unigram_losses


def test_losses_equal_a_sum_token_by_token():
    train, test = [0, 0, 0, 1, 2, 2], [2, 0, 3]
    counts = {
        "train": np.bincount(train, minlength=4),
        "test": np.bincount(test, minlength=4),
    }
    probability = {token: (train.count(token) + 1) / (len(train) + 4) for token in range(4)}
    for split, tokens in (("train", train), ("test", test)):
        expected = sum(-math.log(probability[token]) for token in tokens) / len(tokens)
        assert unigram_losses(counts)[split] == pytest.approx(expected, abs=1e-12)
