"""The bootstrap against resamples that are really made, token by token."""

import numpy as np
import pytest

from tests.evaluation.recl.simulated import losses as simulated
from txlbench.evaluation.recl.bootstrap import (
    RESAMPLES,
    _by_baseline,
    _by_own_loss,
    bootstrap,
    draw_resamples,
    interval_of,
    shares_of,
)
from txlbench.evaluation.recl.metric import count_of
from txlbench.evaluation.recl.null import Blocks

SHARES = (0.07, 0.5, 1.0)


def fifty(tokens):
    return Blocks(np.arange(tokens) * 50 // tokens)


def made(copies, blocks):
    """[tokens] of one resample: the index of every token, copy by copy, and its place."""
    tokens, places = [], []
    for block, count in enumerate(copies.astype(int)):
        for copy in range(count):
            members = np.flatnonzero(blocks.index == block)
            tokens += members.tolist()
            places += [(block, copy)] * len(members)
    return np.array(tokens), places


def hardest_with_copies(values, tokens, share):
    """Places in a resample of its hardest tokens; all copies of the last one are taken."""
    order = sorted(range(len(tokens)), key=lambda k: (-values[tokens[k]], tokens[k]))
    count = count_of(share, len(tokens))
    last = tokens[order[count - 1]]
    return [k for k in order if order.index(k) < count or tokens[k] == last]


@pytest.mark.parametrize("length", [1, 3, 16])
def test_sums_are_those_of_resamples_really_made(length):
    tokens = 130
    random = np.random.default_rng(length)
    blocks = Blocks(np.arange(tokens) // length)
    before, after = simulated(random, tokens, [0.05], models=2).swapaxes(0, 1)
    resamples = draw_resamples(random, 6, blocks)
    paper, own = _by_baseline(before, after, blocks), _by_own_loss(before[0], after[0], blocks)
    by_baseline = resamples.hardest_sums(paper.values, paper.block, SHARES)
    by_own_loss = resamples.hardest_sums(own.values, own.block, SHARES)
    for n, copies in enumerate(resamples.copies):
        drawn, places = made(copies, blocks)
        for share, r in enumerate(SHARES):
            chosen = hardest_with_copies(before.min(axis=0), drawn, r)
            gained = np.maximum(before.min(axis=0) - after, 0)[:, drawn[chosen]].sum(axis=1)
            expected = [len(chosen), *gained]
            assert by_baseline[:, share, n] == pytest.approx(expected, rel=1e-12)
            chosen = hardest_with_copies(np.maximum(before[0], after[0]), drawn, r)
            sums = dict.fromkeys(places, 0.0)
            for k in chosen:
                sums[places[k]] += before[0, drawn[k]] - after[0, drawn[k]]
            expected = [len(chosen), sum(sums.values()), sum(s * s for s in sums.values())]
            assert by_own_loss[:, share, n] == pytest.approx(expected, rel=1e-9)


def test_resamples_take_as_many_blocks_as_there_are():
    blocks = fifty(1003)
    resamples = draw_resamples(np.random.default_rng(0), 50, blocks)
    assert (resamples.copies.sum(axis=1) == blocks.count).all()
    assert np.array_equal(resamples.sizes, resamples.copies @ blocks.sizes)
    assert resamples.copies.mean(axis=0) == pytest.approx(1, abs=0.6)


def test_walks_agree_with_what_is_plain():
    """A step that every token gains by is taken in all resamples, one that none does in none."""
    hardness = 1 + np.random.default_rng(0).gamma(1, 3, 1000)
    losses = hardness - np.array([0.0, 0.2, 0.4, 0.4])[:, None]
    blocks = fifty(1000)
    steps = bootstrap(losses[None], SHARES, 0.01, blocks, np.random.default_rng(0))
    assert steps.shape == (2, 1, 3, RESAMPLES)
    assert (steps == 2).all()


def test_walks_above_the_null_never_go_farther():
    losses = simulated(np.random.default_rng(5), 1000, [0.03, 0.015, 0.01, 0.0], models=3)
    blocks = fifty(1000)
    paper, above = bootstrap(losses, SHARES, 0.01, blocks, np.random.default_rng(1))
    assert (above <= paper).all()
    assert len(np.unique(above)) > 2


def test_a_model_that_never_leads_takes_no_step_however_much_it_gains():
    hardness = 5 + np.random.default_rng(0).gamma(1, 3, 1000)
    worse = hardness - np.array([0.0, 0.2])[:, None]
    losses = np.stack([worse, np.stack([hardness, hardness]) - 3])
    blocks = fifty(1000)
    assert not bootstrap(losses, SHARES, 0.01, blocks, np.random.default_rng(0)).any()


def test_gains_that_are_noise_are_tested_in_each_resample():
    """Of a sample in which noise looks like a gain of 5 %, most resamples see no gain."""
    losses = simulated(np.random.default_rng(18), 1000, [0.0], noise=1.0)
    found = bootstrap(losses, (1.0,), 0.01, fifty(1000), np.random.default_rng(1))
    assert found[0].all()
    assert 0 < found[1].mean() < 0.5


def test_quantiles_are_lengths_that_occurred():
    lengths = [100] * 30 + [200] * 900 + [300] * 70
    assert interval_of(lengths) == (100, 300)
    assert interval_of([100] * 20 + [200] * 980) == (200, 200)
    assert shares_of(lengths) == {"100": 0.03, "200": 0.9, "300": 0.07}


def test_interval_holds_the_truth_of_a_sample():
    """A step whose true gain is far from the threshold is the same in nearly all resamples."""
    losses = simulated(np.random.default_rng(7), 4000, [0.1, 0.08, 0.0])
    blocks = fifty(4000)
    _, above = bootstrap(losses, (1.0,), 0.01, blocks, np.random.default_rng(1))
    assert interval_of(above[0, 0].tolist()) == (2, 2)
