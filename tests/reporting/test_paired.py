"""The paired interval against simulations whose true difference is known, and against formulas."""

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from txlbench.reporting.paired import GROUPS, holm, paired_difference

TRUE = 0.03


def simulated(rng, seeds, seed_sd, token_sd, rest_sd, blocks=GROUPS):
    """Differences [n, K] of two rows with a true difference of TRUE; `token_sd` and `rest_sd` are
    of a block, so that they shrink with the root of their number."""
    of_seeds = rng.normal(0, seed_sd, (seeds, 1))
    of_text = rng.normal(0, token_sd, (1, blocks))
    return TRUE + of_seeds + of_text + rng.normal(0, rest_sd, (seeds, blocks))


def coverage(calls, *settings):
    rng, covered = np.random.default_rng(1), 0
    for _ in range(calls):
        drawn = simulated(rng, *settings)
        found = paired_difference(drawn.mean(axis=1).tolist(), drawn)
        covered += abs(found.mean - TRUE) <= found.half_width()
    return covered / calls


VARIATIONS = {
    "seeds alone": (0.01, 0.0, 0.0),
    "tokens alone": (0.0, 0.06, 0.0),
    "as much of both": (0.01, 0.06, 0.03),
    "another difference on every text": (0.01, 0.0, 0.06),
}


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("name", VARIATIONS)
def test_the_interval_covers_a_known_difference(name, seeds):
    """At 95 %, or somewhat more where seeds and tokens vary alike; 4 standard errors below."""
    calls = 400
    found = coverage(calls, seeds, *VARIATIONS[name])
    assert 0.95 - 4 * math.sqrt(0.95 * 0.05 / calls) <= found
    if name == "seeds alone" or (name == "tokens alone" and seeds > 3):
        assert found <= 0.95 + 4 * math.sqrt(0.95 * 0.05 / calls)


@pytest.mark.full
@pytest.mark.parametrize("seeds", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.3, 1.0, 3.0, 10.0])
def test_it_covers_at_every_ratio_of_the_two(ratio, seeds):
    """Of one seed where only tokens vary, which is all that it claims."""
    calls, seed_sd = 10_000, 0.01 if seeds > 1 else 0.0
    found = coverage(calls, seeds, seed_sd, 0.01 * ratio * math.sqrt(GROUPS), 0.03)
    assert 0.943 <= found <= 0.992


def test_a_test_over_seeds_alone_is_student_s():
    totals = [0.05, 0.02, 0.04]
    found = paired_difference(totals, None)
    assert found.half_width() == pytest.approx(4.3027 * statistics.stdev(totals) / 3**0.5, rel=1e-4)
    assert found.p == pytest.approx(stats.ttest_1samp(totals, 0).pvalue, rel=1e-6)


def test_one_seed_has_the_interval_of_its_tokens_and_no_test():
    drawn = simulated(np.random.default_rng(2), 1, 0.0, 0.05, 0.0)
    found = paired_difference([drawn.mean()], drawn)
    expected = stats.ttest_1samp(drawn[0], 0).confidence_interval()
    assert found.half_width() == pytest.approx((expected.high - expected.low) / 2)
    assert (found.p, found.seeds_needed(0.05)) == (None, None)
    assert paired_difference([0.1], None).half_width() is None


def test_text_that_changes_the_difference_widens_the_interval():
    rng = np.random.default_rng(3)
    plain = simulated(rng, 3, 0.01, 0.0, 0.0)
    text = rng.normal(0, 0.3, (1, GROUPS))
    drawn = plain + text - text.mean()  # the same differences of whole losses
    narrow, wide = (paired_difference(plain.mean(axis=1).tolist(), each) for each in (plain, drawn))
    assert narrow.mean == wide.mean
    assert wide.half_width() > 1.5 * narrow.half_width()


def test_neighbouring_blocks_are_joined():
    """Blocks of a long article count once, not as often as it was cut."""
    drawn = np.repeat(simulated(np.random.default_rng(4), 1, 0.0, 0.05, 0.0), 5, axis=1)
    joined, cut = (paired_difference([0.0], each) for each in (drawn[:, ::5], drawn))
    assert cut.half_width() == pytest.approx(joined.half_width())


def test_the_number_of_seeds_that_resolves_it():
    found = paired_difference([0.03, 0.01, 0.05, -0.01], None)
    needed = found.seeds_needed(0.05)
    assert found.half_width() > found.mean
    assert found.half_width(seeds=needed) < found.mean <= found.half_width(seeds=needed - 1)
    assert found.seeds_needed(0.005) > needed
    assert paired_difference([0.01, -0.01], None).seeds_needed(0.05) is None


def test_no_number_of_seeds_helps_where_the_text_is_too_short():
    drawn = np.tile(simulated(np.random.default_rng(5), 1, 0.0, 3.0, 0.0), (3, 1))
    found = paired_difference([0.02, 0.03, 0.04], drawn)
    assert found.seeds_needed(0.05) is None


def test_equal_rows_do_not_differ():
    found = paired_difference([0.0, 0.0], np.zeros((2, 9)))
    assert (found.mean, found.half_width(), found.p) == (0.0, 0.0, 1.0)


def test_holm_s_p_values_are_those_of_his_procedure():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.5]) == [1.0, 1.0]
    assert holm([]) == []
