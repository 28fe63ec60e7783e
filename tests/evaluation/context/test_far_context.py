"""Changed far context against its definition, and on losses whose truth is known."""

import numpy as np
import pytest

from tests.evaluation.context.made import assert_nominal, holds, simulated
from txlbench.errors import UserError
from txlbench.evaluation.context.far_context import (
    Change,
    FarLosses,
    changed_windows,
    evictions,
    far_contexts,
    frequent_types,
    other_start,
    plain_windows,
    why_not_ablated,
)

IDS = np.random.default_rng(3).zipf(1.5, 2000) % 40
POSITIONS = np.arange(100, 1900, 7)
NEAR, CONTEXT = 12, 50


def windows(name, seed=0, ids=IDS, positions=POSITIONS, near=NEAR, context=CONTEXT):
    return changed_windows(ids, positions, near, context, Change.parse(name), seed)


@pytest.mark.parametrize("name", ["shuffle", "shuffle:8", "reverse", "other", "frequent", "rare"])
def test_the_nearest_tokens_and_the_target_stay_and_nothing_later_is_seen(name):
    for position, window in zip(POSITIONS, windows(name), strict=True):
        assert np.array_equal(window[-NEAR - 1 :], IDS[position - NEAR : position + 1])
        assert len(window) <= CONTEXT + 1


def test_a_shuffle_keeps_the_tokens_in_any_order():
    found = windows("shuffle")
    fars = [IDS[p - CONTEXT : p - NEAR] for p in POSITIONS]
    for far, window in zip(fars, found, strict=True):
        assert sorted(window[: -NEAR - 1]) == sorted(far)
    assert any(not np.array_equal(f, w[: -NEAR - 1]) for f, w in zip(fars, found, strict=True))
    again, other = windows("shuffle"), windows("shuffle", seed=1)
    assert all(map(np.array_equal, found, again))
    assert not all(map(np.array_equal, found, other))


def test_a_shuffle_within_counts_from_the_near_end():
    """38 far tokens in eights: the oldest part has 6."""
    for position, window in zip(POSITIONS, windows("shuffle:8"), strict=True):
        far, start = IDS[position - CONTEXT : position - NEAR], 0
        for size in (6, 8, 8, 8, 8):
            part = slice(start, start + size)
            assert sorted(window[part]) == sorted(far[part])
            start += size


def test_reversed_replaced_and_thinned_by_loops():
    counts = {token: list(IDS).count(token) for token in set(IDS.tolist())}
    top = sorted(counts, key=lambda token: (-counts[token], token))[: round(0.1 * len(counts))]
    assert set(np.flatnonzero(frequent_types(IDS))) == set(top)
    names = ("reverse", "frequent", "rare", "other")
    backward, frequent, rare, other = map(windows, names)
    for index, position in enumerate(POSITIONS.tolist()):
        far = IDS[position - CONTEXT : position - NEAR].tolist()
        assert backward[index][: -NEAR - 1].tolist() == far[::-1]
        assert frequent[index][: -NEAR - 1].tolist() == [t for t in far if t in top]
        assert rare[index][: -NEAR - 1].tolist() == [t for t in far if t not in top]
        start = other_start(position - CONTEXT, CONTEXT - NEAR, len(IDS))
        assert other[index][: -NEAR - 1].tolist() == IDS[start : start + 38].tolist()
        assert start >= position + 1 or start + 38 <= position - CONTEXT


def test_all_of_the_context_may_be_near():
    far_nothing = windows("shuffle", near=CONTEXT)
    assert all(map(np.array_equal, far_nothing, plain_windows(IDS, POSITIONS, CONTEXT)))


@pytest.mark.parametrize("name", ["swap", "shuffle:", "shuffle:1", "shuffle:x", "reverse:3", ""])
def test_an_unknown_change_is_refused(name):
    with pytest.raises(UserError, match=f"--changes: '{name}' found; give shuffle, reverse"):
        Change.parse(name)


def test_a_short_text_has_no_other_text():
    with pytest.raises(UserError, match="a text of 200 tokens has no other 50"):
        windows("other", ids=IDS[:200], positions=np.array([60]))


# The share that is lost

TRUE_WORTH, TRUE_SHARE = 0.5, 0.4


def losses(random, worth=TRUE_WORTH, share=TRUE_SHARE, tokens=1000, noise=0.3):
    """A change that loses `share` of what a cut at 16 loses, with noise that losses share."""
    hardness = random.gamma(2.0, 1.0, tokens)
    eager = random.gamma(4.0, 0.25, tokens)  # of mean 1

    def at(level):
        return hardness + level * eager + noise * random.standard_normal(tokens)

    return FarLosses(
        at(0.0),
        {16: at(worth)},
        {(16, "shuffle"): at(share * worth)},
        {16: at(0.3)},
        {16: at(0.1)},
    )


def measured(one, seed=0):
    resampling = one.resampling(1000 + 16 * np.arange(len(one.full)), seed)
    (far,) = far_contexts(one, resampling)
    (cache,) = evictions(one, resampling)
    return far, cache, list(why_not_ablated([far], resampling))


def test_values_are_ratios_of_means_by_loops():
    one = losses(np.random.default_rng(1))
    far, cache, missing = measured(one)

    def mean(values):
        return sum(float(value) for value in values) / len(values)

    worth = mean(one.cut[16]) - mean(one.full)
    cost = mean(one.changed[16, "shuffle"]) - mean(one.full)
    assert far.worth.value == pytest.approx(worth, abs=1e-9)
    assert far.changes[0].cost.value == pytest.approx(cost, abs=1e-9)
    assert far.changes[0].ablated.value == pytest.approx(cost / worth, abs=1e-9)
    assert cache.cost.value == pytest.approx(mean(one.window[16]) - mean(one.full), abs=1e-9)
    assert cache.saved.value == pytest.approx(mean(one.window[16]) - mean(one.sinks[16]), abs=1e-9)
    assert not missing


def test_intervals_cover_the_truth_at_their_rate():
    def covered(random):
        far, cache, _ = measured(losses(random), int(random.integers(1 << 30)))
        (change,) = far.changes
        return (
            holds(far.worth, TRUE_WORTH),
            holds(change.cost, TRUE_SHARE * TRUE_WORTH),
            holds(change.ablated, TRUE_SHARE),
            holds(cache.cost, 0.3),
            holds(cache.saved, 0.2),
        )

    assert_nominal(simulated(covered))


def test_where_far_context_is_worth_nothing_no_share_is_given():
    """Noise passes for worth in one of 40."""

    def resolved(random):
        far, _, missing = measured(losses(random, worth=0.0))
        assert bool(missing) == (far.changes[0].ablated is None)
        return not missing

    assert simulated(resolved).mean() <= 0.06
    far, _, (missing,) = measured(losses(np.random.default_rng(0), worth=0.0))
    assert far.changes[0].ablated is None
    assert missing.measure == "ablated information beyond 16 tokens"
    assert "not above 0: there is nothing to lose" in missing.reason


def test_too_few_tokens_give_values_without_intervals():
    far, cache, (missing,) = measured(losses(np.random.default_rng(0), tokens=40))
    assert far.worth.low is None
    assert far.changes[0].ablated is None
    assert cache.saved.low is None
    assert missing.reason.startswith("too few tokens: 40")
