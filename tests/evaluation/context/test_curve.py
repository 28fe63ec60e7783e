import math

import numpy as np
import pytest

from tests.evaluation.context.made import (
    assert_nominal,
    group,
    holds,
    losses_of,
    resampling_of,
    simulated,
)
from txlbench.evaluation.context.curve import (
    DELTA,
    Means,
    context_curves,
    icl_scores,
    information_steps,
)

CONTEXTS = (20, 50, 100, 500)
CURVES = np.array([[3.0, 2.4, 2.1, 2.0], [2.7, 2.5, 2.3, 2.25]])


def measured(one):
    resampling = resampling_of(one)
    means = Means.of(one, resampling)
    return means, list(context_curves(one, means, resampling, 0.01))


@pytest.fixture(scope="module")
def one():
    return group(losses_of(np.random.default_rng(5), CURVES), CONTEXTS)


def test_curves_are_means_one_token_after_another(one):
    _, curves = measured(one)
    for model, curve in enumerate(curves):
        for row in range(len(CONTEXTS)):
            mean = math.fsum(one.losses[model, row].tolist()) / one.losses.shape[2]
            best = math.fsum(one.losses[0, row].tolist()) / one.losses.shape[2]
            assert curve.losses[row].value == pytest.approx(mean, abs=1e-9)
            assert curve.above_best[row].value == pytest.approx(mean - best, abs=1e-9)


def test_harm_is_counted_token_by_token(one):
    _, curves = measured(one)
    for model, curve in enumerate(curves):
        for harm in curve.harm:
            before, after = CONTEXTS.index(harm.shorter), CONTEXTS.index(harm.longer)
            harmed = helped = 0
            cost = gain = 0.0
            for token in range(one.losses.shape[2]):
                change = one.losses[model, after, token] - one.losses[model, before, token]
                harmed, helped = harmed + (change > DELTA), helped + (change < -DELTA)
                cost, gain = cost + max(0.0, change), gain + max(0.0, -change)
            found = (harm.harmed.value, harm.helped.value, harm.cost.value, harm.gain.value)
            expected = np.array([harmed, helped, cost, gain]) / one.losses.shape[2]
            assert found == pytest.approx(expected, abs=1e-9)
    steps = [(harm.shorter, harm.longer) for harm in curves[0].harm]
    assert steps == [(20, 50), (50, 100), (100, 500), (20, 500)]


def test_v_information_is_the_gain_of_the_best_at_each_context(one):
    means, _ = measured(one)
    means_by_loop = [
        [math.fsum(line.tolist()) / len(line) for line in losses] for losses in one.losses
    ]
    for row, step in enumerate(information_steps(one, means)):
        before = min(line[row] for line in means_by_loop)
        after = min(line[row + 1] for line in means_by_loop)
        assert step.nats.value == pytest.approx(before - after, abs=1e-9)
    assert next(step.best for step in information_steps(one, means)) == ("b", "a")


def test_icl_score_is_of_contexts_50_and_500(one):
    means, curves = measured(one)
    (first, _) = icl_scores(one, means)
    assert first.score.value == pytest.approx(
        curves[0].losses[3].value - curves[0].losses[1].value, abs=1e-9
    )
    other = group(one.losses, (20, 51, 100, 500))
    assert not list(icl_scores(other, Means.of(other, resampling_of(other))))


def test_a_model_can_use_no_more_than_its_longest(one):
    short = group(one.losses, CONTEXTS, longest=(30, None))
    _, curves = measured(short)
    assert curves[0].ecl.value == 30


def test_intervals_cover_the_truth_at_their_rate():
    def covered(random):
        one = group(losses_of(random, CURVES), CONTEXTS)
        means, (curve, other) = measured(one)
        steps = list(information_steps(one, means))
        (score, _) = icl_scores(one, means)
        least = CURVES.min(axis=0)
        return (
            holds(curve.losses[0], 3.0),
            holds(curve.losses[3], 2.0),
            holds(curve.gain, 1.0),
            holds(other.above_best[2], 0.2),
            holds(score.score, -0.4),
            holds(steps[1].nats, least[1] - least[2]),
            holds(steps[2].nats, least[2] - least[3]),
        )

    assert_nominal(simulated(covered))


def test_harm_covers_the_truth():
    """Every token's loss changes by a normal number of standard deviation .3 sqrt 2."""
    normal = math.erfc(DELTA / 0.3 / math.sqrt(2) / math.sqrt(2)) / 2
    cost = 0.3 * math.sqrt(2) / math.sqrt(2 * math.pi)

    def covered(random):
        one = group(losses_of(random, [[2.0, 2.0]]), (1, 2))
        (curve,) = measured(one)[1]
        (harm,) = curve.harm
        return holds(harm.harmed, normal), holds(harm.helped, normal), holds(harm.cost, cost)

    assert_nominal(simulated(covered))


def test_noise_alone_gives_no_effect():
    def resolved(random):
        one = group(losses_of(random, np.full((2, 4), 2.0)), CONTEXTS)
        means, curves = measured(one)
        steps = list(information_steps(one, means))
        found = [curves[0].gain, curves[1].above_best[-1], steps[0].nats]
        return [each.is_resolved for each in found]

    assert np.all(simulated(resolved, 100).mean(axis=0) <= 0.1)
