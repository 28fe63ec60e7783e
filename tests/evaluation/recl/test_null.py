"""The net gain and its sign-flip test: 50 blocks, long enough to be independent."""

import functools
import itertools

import numpy as np
import pytest

from tests.evaluation.recl import by_definition
from tests.evaluation.recl.simulated import correlated
from tests.evaluation.recl.simulated import losses as simulated
from txlbench.errors import UserError
from txlbench.evaluation.recl.metric import gains
from txlbench.evaluation.recl.null import (
    FLIPS,
    LEVEL,
    Blocks,
    autocorrelation_time,
    blocks_of,
    draw_signs,
    measure,
    net_gains,
    p_values,
)

SHARES = (0.1, 0.5, 1.0)


def fifty(tokens):
    return Blocks(np.arange(tokens) * 50 // tokens)


@functools.cache
def signs():
    return draw_signs(np.random.default_rng(0), 50)


def test_net_gains_follow_their_formula():
    losses = simulated(np.random.default_rng(1), 800, [0.05, 0.0, 0.02])[0]
    blocks = fifty(800)
    found = net_gains(losses, SHARES, blocks, signs())
    for share, r in enumerate(SHARES):
        expected = [by_definition.net_gain(losses.tolist(), c, r) for c in range(3)]
        assert found.relative[share] == pytest.approx(expected, abs=1e-9)


def test_p_counts_flips_of_whole_blocks_of_the_hardest_tokens():
    losses = simulated(np.random.default_rng(2), 800, [0.003])[0]
    blocks = fifty(800)
    found = net_gains(losses, SHARES, blocks, signs()[:999])
    for share, r in enumerate(SHARES):
        sums = [0.0] * 50
        for t in by_definition.chosen_by_own_loss(losses.tolist(), 0, r):
            sums[t // 16] += losses[0, t] - losses[1, t]
        reached = sum(np.dot(flip, sums) >= sum(sums) for flip in signs()[:999].astype(float))
        assert 0.001 < found.p[share, 0] == (1 + reached) / 1000


def test_the_test_is_exact_over_all_flips():
    """Among all flips of any sums, those with p <= q are at most a share q."""
    sums = np.array([0.3, -1.0, 2.0, 0.0, 0.7, 0.7, 1e-9])
    signs = np.array(list(itertools.product([-1, 1], repeat=7)), dtype=np.int8)
    p = p_values(sums * signs, signs[1:])
    for q in (0.01, 0.05, 0.1, 0.5):
        assert (p <= q).mean() <= q


def test_ties_are_not_broken_by_rounding():
    """Four blocks that differ leave 1 flip in 16 exactly as large as what was observed."""
    for seed in range(50):
        random = np.random.default_rng(seed)
        where = random.choice(50, 4, replace=False)
        sums = np.zeros((1, 50))
        sums[0, where] = random.random(4)
        expected = (1 + (signs()[:9999][:, where] == 1).all(axis=1).sum()) / 10_000
        assert p_values(sums, signs()[:9999]).item() == expected


def test_p_near_its_level_hardly_depends_on_the_seed():
    """With 999 flips RECL above the null was 16 or 32 by the seed, where p is about .047."""
    sums = np.random.default_rng(3).standard_normal((1, 50))
    sums += 1.716 * sums.std() / 50**0.5 - sums.mean()
    for flips, is_always_found in ((FLIPS, True), (999, False)):
        drawn = [draw_signs(np.random.default_rng(seed), 50, flips) for seed in range(6)]
        found = [p_values(sums, signs).item() for signs in drawn]
        assert (max(found) <= LEVEL) == is_always_found
        assert min(found) <= LEVEL
    assert max(found) > min(found) + 0.01


def test_equal_contexts_have_no_gain_and_p_one():
    losses = np.ones((2, 800)) * np.random.default_rng(0).gamma(1, 3, 800)
    blocks = fifty(800)
    found = net_gains(losses, SHARES, blocks, signs())
    assert found.relative.tolist() == [[0.0]] * 3
    assert found.p.tolist() == [[1.0]] * 3


def test_net_gain_equals_the_gain_where_context_never_hurts():
    random = np.random.default_rng(3)
    losses = random.gamma(1, 3, 800) - np.array([0.0, 0.1, 0.3])[:, None] * random.random(800)
    blocks = fifty(800)
    found = net_gains(losses, SHARES, blocks, signs())
    assert found.relative == pytest.approx(gains(losses[None], SHARES).relative[0], abs=1e-12)


def test_other_models_do_not_change_net_gains():
    group = simulated(np.random.default_rng(4), 800, [0.02, 0.0], models=3)
    blocks = fifty(800)
    together = measure(group, SHARES, blocks, signs())
    alone = net_gains(group[1], SHARES, blocks, signs())
    assert np.array_equal(together.net_gains[1], alone.relative)
    assert np.array_equal(together.p[1], alone.p)


def test_noise_moves_the_papers_recl_but_not_the_one_above_the_null():
    """200 files of noise: 10 exceed the first context by chance, 16 is two deviations above."""
    exceeded, inflated = np.zeros(3), np.zeros(3)
    for seed in range(200):
        random = np.random.default_rng([200, seed])
        losses = simulated(random, 2000, [0.0, 0.0])
        blocks = fifty(2000)
        found = measure(losses, SHARES, blocks, signs()[:999])
        inflated += found.counts(0.01)[0, :, 0]
        exceeded += found.counts_above_null(0.01)[0, :, 0]
    assert (inflated >= 190).all()
    assert (exceeded <= 16).all()


FLAT = np.ones((1, 2, 1000))


@pytest.mark.parametrize("tokens", [800, 801, 1000, 8191])
def test_there_are_fifty_blocks_of_like_size(tokens):
    blocks = blocks_of(np.arange(tokens), FLAT)
    assert blocks.count == 50
    assert set(blocks.sizes) <= {tokens // 50, tokens // 50 + 1}
    assert blocks.sizes.sum() == tokens
    assert (np.diff(blocks.index) >= 0).all()
    assert blocks.length == tokens // 50


@pytest.mark.parametrize(("spacing", "needed"), [(1, 16), (2, 8), (3, 6), (8, 3), (500, 3)])
def test_a_block_covers_sixteen_tokens_of_text_and_three_positions(spacing, needed):
    positions = 7 + spacing * np.arange(50 * needed)
    assert blocks_of(positions, FLAT).count == 50
    with pytest.raises(
        UserError, match=rf"too few tokens: {50 * needed - 1:,}, .*{50 * needed:,} "
    ):
        blocks_of(positions[:-1], FLAT)


def test_uneven_positions_count_as_their_closest_pair():
    positions = np.array([0, 4, *range(100, 10000, 50)])
    assert blocks_of(positions, FLAT).count == 50
    with pytest.raises(UserError, match="50 blocks of 4;"):
        blocks_of(positions[:199], FLAT)


def test_one_token_is_too_few():
    with pytest.raises(UserError, match="too few tokens"):
        blocks_of(np.array([5]), np.ones((1, 2, 1)))


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_autocorrelation_time_of_an_autoregressive_series(phi):
    """(1 + phi) / (1 - phi) by theory: 1, 3, 19."""
    found = autocorrelation_time(correlated(np.random.default_rng(0), (10, 20000), phi))
    assert found == pytest.approx((1 + phi) / (1 - phi), rel=0.15)


def test_steps_without_change_have_no_autocorrelation():
    assert autocorrelation_time(np.full((2, 500), 0.1)) == 1.0
    changes = np.stack([np.zeros(5000), correlated(np.random.default_rng(1), 5000, 0.5)])
    assert autocorrelation_time(changes) == autocorrelation_time(changes[1:])


def test_tokens_that_hang_together_must_be_more():
    """At 0.9, 19 tokens vary as one: 50 blocks of 57."""
    noise = correlated(np.random.default_rng(2), (1, 9, 4000), 0.9)
    assert blocks_of(np.arange(4000), noise).count == 50
    with pytest.raises(
        UserError, match=r"too few tokens: 2,000.* alike over \d\d of them; .* least"
    ):
        blocks_of(np.arange(2000), noise[..., :2000])
