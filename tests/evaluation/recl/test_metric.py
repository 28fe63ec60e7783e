"""Where a walk ends, and why.

Gains and RECL against the paper's formulas, written out token by token.
"""

import numpy as np
import pytest

from tests.evaluation.recl import by_definition
from tests.evaluation.recl.simulated import losses as simulated
from txlbench.evaluation.recl.metric import Walk, count_of, gains, walk

CONTEXTS = (100, 200, 300)


@pytest.mark.parametrize(
    ("counts", "longest", "expected"),
    [
        ([False, True], None, Walk(100, False, None)),
        ([True, False], None, Walk(200, False, None)),
        ([True, True], None, Walk(300, True, None)),
        ([True, False], 128, Walk(128, False, "longest")),
        ([True, False], 200, Walk(200, False, "longest")),
        ([True, False], 201, Walk(200, False, None)),
        ([False, False], 64, Walk(64, False, "longest")),
        ([True, True], 128, Walk(128, True, "longest")),
        ([True, True], 999, Walk(300, True, None)),
    ],
)
def test_the_walk_stops_at_the_first_step_that_does_not_count(counts, longest, expected):
    assert walk(np.array(counts), CONTEXTS, longest) == expected


GAINS_CONTEXTS = (100, 200, 300, 400)
SHARES = (0.07, 0.1, 0.5, 1.0)


def planted(random, models, tokens):
    """Tokens that wait for one certain context, as far as each model looks; many ties."""
    lags = random.choice([150, 250, 350, 999], tokens)
    reach = random.choice([150, 250, 350], models)
    sees = (lags <= np.array(GAINS_CONTEXTS)[:, None]) & (lags <= reach[:, None, None])
    return np.where(sees, 0.25, 2.5 + (lags == 350))


def noisy(random, models, tokens):
    return simulated(random, tokens, [0.05, 0.02, 0.0], models)


def rough(random, models, tokens):
    return random.gamma(1.0, 3.0, (models, len(GAINS_CONTEXTS), tokens)).astype(np.float32)


@pytest.mark.parametrize("make", [planted, noisy, rough])
@pytest.mark.parametrize("models", [1, 2, 3, 5])
@pytest.mark.parametrize("tokens", [1, 33, 100])
def test_gains_and_recl_follow_the_formulas(make, models, tokens):
    random = np.random.default_rng([models, tokens])
    losses = make(random, models, tokens).astype(np.float64)
    found = gains(losses, SHARES)
    plain = losses.tolist()
    for i in range(models):
        for share, r in enumerate(SHARES):
            expected = [by_definition.gain(plain, i, c, c + 1, r) for c in range(3)]
            assert found.relative[i, share] == pytest.approx(expected, abs=1e-9)
            counts = found.relative[i, share] >= 0.01
            expected = by_definition.recl(plain, i, r, GAINS_CONTEXTS)
            assert walk(counts, GAINS_CONTEXTS, None).length == expected


def test_differences_are_unnormalised_gains():
    plain = rough(np.random.default_rng(0), 3, 50).astype(np.float64)
    found = gains(plain, [0.1])
    for i in range(3):
        before = by_definition.f(plain.tolist(), i, 1, 1, 0.1)
        after = by_definition.f(plain.tolist(), i, 1, 2, 0.1)
        expected = np.exp(before) - np.exp(after)
        assert found.differences[i, 0, 1] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("share", "tokens", "count"),
    [(0.07, 100, 7), (0.1, 100, 10), (0.1, 101, 11), (0.29, 100, 29), (1.0, 7, 7), (0.001, 5, 1)],
)
def test_a_share_of_the_tokens(share, tokens, count):
    assert count_of(share, tokens) == count


def test_equally_hard_tokens_are_taken_in_their_order():
    losses = np.array([[[2.0, 2.0, 2.0, 2.0], [1.0, 2.0, 2.0, 2.0]]])
    assert gains(losses, [0.25]).relative.item() == pytest.approx(1 - np.exp(-1))
    assert gains(losses[..., ::-1], [0.25]).relative.item() == 0


def test_losses_far_too_high_give_gains_all_the_same():
    losses = np.array([[[3e38] * 4, [1.0] * 4], [[3e38] * 4, [3e38] * 4]])
    found = gains(losses, [0.5])
    assert found.relative[:, 0, 0].tolist() == [1.0, 0.0]
    assert np.isfinite(found.differences).all()
