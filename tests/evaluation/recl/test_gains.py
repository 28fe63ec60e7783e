"""Gains and RECL against the paper's formulas, written out token by token."""

import numpy as np
import pytest

from tests.evaluation.recl import by_definition
from tests.evaluation.recl.simulated import losses as simulated
from txlbench.evaluation.recl.gains import gains
from txlbench.evaluation.recl.ranking import count_of
from txlbench.evaluation.recl.walk import walk

CONTEXTS = (100, 200, 300, 400)
SHARES = (0.07, 0.1, 0.5, 1.0)


def planted(random, models, tokens):
    """Tokens that wait for one certain context, as far as each model looks; many ties."""
    lags = random.choice([150, 250, 350, 999], tokens)
    reach = random.choice([150, 250, 350], models)
    sees = (lags <= np.array(CONTEXTS)[:, None]) & (lags <= reach[:, None, None])
    return np.where(sees, 0.25, 2.5 + (lags == 350))


def noisy(random, models, tokens):
    return simulated(random, tokens, [0.05, 0.02, 0.0], models)


def rough(random, models, tokens):
    return random.gamma(1.0, 3.0, (models, len(CONTEXTS), tokens)).astype(np.float32)


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
            expected = by_definition.recl(plain, i, r, CONTEXTS)
            assert walk(counts, CONTEXTS, None).length == expected


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
