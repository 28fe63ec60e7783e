import math

import numpy as np
import pytest

from tests.evaluation.context.made import assert_nominal, group, holds, resampling_of, simulated
from txlbench.evaluation.context.curve import Means
from txlbench.evaluation.context.key_tokens import key_tokens, short_context

CONTEXTS = (16, 128)
SHARE, KEY_LOSS = 0.1, 0.8


def made(random, tokens=1000, noise=0.1, share=SHARE):
    """One token in ten needs the long context: its loss falls from 5 to .8. The second model is
    worse by .2 nats on all tokens."""
    is_key = random.random(tokens) < share
    long = np.where(is_key, KEY_LOSS, 1.5) + 0.1 * random.standard_normal((2, tokens))
    short = np.where(is_key, 5.0, 1.5) + noise * random.standard_normal((2, tokens))
    long[1] += 0.2
    return group(np.stack([short, long], axis=1), CONTEXTS)


def measured(one):
    resampling = resampling_of(one)
    found = key_tokens(one, Means.of(one, resampling), resampling)
    return {(each.model, each.chosen_by): each for each in found}


def test_longppl_is_that_of_its_published_rule():
    """LSD above 2 and LCL above -2, one token after another."""
    random = np.random.default_rng(0)
    one = group(random.gamma(1.5, 1.5, (2, 2, 1000)), CONTEXTS)
    found = measured(one)
    best = int(one.losses[:, 1].mean(axis=1).argmin())
    for (model, chooser), each in found.items():
        scored, chosen = (one.losses["ab".index(name)] for name in (model, chooser))
        keys = [
            t
            for t in range(1000)
            if chosen[0, t] - chosen[1, t] > 2 and -chosen[1, t] > -2  # alpha 2, beta -2
        ]
        by_chance = sum(chosen[1, t] - chosen[0, t] > 2 and -chosen[0, t] > -2 for t in range(1000))
        longppl = math.exp(math.fsum(scored[1, t] for t in keys) / len(keys))
        assert each.tokens == len(keys)
        assert each.share.value == pytest.approx(len(keys) / 1000, abs=1e-9)
        assert each.net.value == pytest.approx((len(keys) - by_chance) / 1000, abs=1e-9)
        assert each.longppl.value == pytest.approx(longppl, abs=1e-9)
    worse = "ab"[1 - best]
    assert set(found) == {("ab"[best],) * 2, (worse, "ab"[best]), (worse, worse)}


def test_few_key_tokens_have_no_longppl():
    found = measured(made(np.random.default_rng(0), share=0.004))[("a", "a")]
    assert 0 < found.tokens < 10
    assert found.longppl is None


def test_the_short_context_is_an_eighth_of_the_long_one():
    assert short_context((1, 2, 4, 8, 16, 32, 64, 128)) == 4
    assert short_context(tuple(range(100, 1001, 100))) == 0
    assert short_context((100, 110)) == 0


def test_intervals_cover_the_truth_at_their_rate():
    def covered(random):
        found = measured(made(random))
        own, other = found[("a", "a")], found[("b", "a")]
        return (
            holds(own.share, SHARE),
            holds(own.net, SHARE),
            holds(own.longppl, math.exp(KEY_LOSS)),
            holds(other.longppl, math.exp(KEY_LOSS + 0.2)),
        )

    assert_nominal(simulated(covered))


def test_choosing_and_scoring_by_one_model_flatters_it():
    """Of losses that are noise, half of those that look key have a lucky long context."""
    random = np.random.default_rng(0)
    losses = 2.5 + 1.0 * random.standard_normal((2, 2, 5000))
    losses[1] += 0.1  # so that the first is the best
    found = measured(group(losses, CONTEXTS))
    assert found[("b", "b")].longppl.value < 0.8 * found[("b", "a")].longppl.value


def test_noise_alone_gives_no_key_tokens():
    def resolved(random):
        losses = 2.0 + 1.5 * random.standard_normal((1, 2, 1000))
        (found,) = measured(group(losses, CONTEXTS)).values()
        return found.net.is_resolved

    assert simulated(resolved).mean() <= 0.1
