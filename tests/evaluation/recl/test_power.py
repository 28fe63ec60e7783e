"""What the test against noise finds, and how often it finds what is not there."""

import numpy as np
import pytest

from tests.evaluation.recl.simulated import shifted
from txlbench.evaluation.recl.null import blocks_of, draw_signs, net_gains

SHARES = (0.1, 0.5, 1.0)
TRIALS = 200


def share_found(tokens, gain):
    """[R]: how often p is at most .05, where every token gains alike."""
    found = np.zeros(len(SHARES))
    for seed in range(TRIALS):
        random = np.random.default_rng([tokens, seed])
        blocks = blocks_of(np.arange(tokens))
        signs = draw_signs(random, blocks.count)
        found += net_gains(shifted(random, tokens, gain), SHARES, blocks, signs).p[:, 0] <= 0.05
    return found / TRIALS


def test_level():
    """.05 in truth; binomial noise of 200 trials allows .10."""
    assert (share_found(2000, 0.0) <= 0.10).all()


@pytest.mark.full
@pytest.mark.parametrize(
    ("tokens", "expected"), [(2000, [0.25, 0.75, 0.95]), (10000, [0.74, 1.0, 1.0])]
)
def test_power_at_a_true_gain_of_one_percent(tokens, expected):
    """As the docstring of null.py says."""
    assert share_found(tokens, 0.01) == pytest.approx(expected, abs=0.1)
