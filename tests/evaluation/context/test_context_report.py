"""All measures of a group together, on the process behind the corpus `planted`, which is known."""

import math

import numpy as np
import pytest

from tests.evaluation.context.made import assert_nominal, group, holds, losses_of, simulated
from txlbench.data.planted import PROCESS
from txlbench.evaluation.context import context_report
from txlbench.evaluation.context.context_report import EVERY, NOT_DENSE, context_group
from txlbench.evaluation.context.mutual_information import exponents
from txlbench.evaluation.context.resampling import Resampling
from txlbench.evaluation.context.token_classes import Partition, TokenText
from txlbench.evaluation.recl.metric import ModelGroup, ReclTerms

CONTEXTS = (32, 96, 160, 224, 288)
STREAMS = tuple(zip(PROCESS.lags, PROCESS.alphabets, strict=True))


def expected(stream, context):
    """The mean of the lowest possible loss of one stream's tokens, from the law of the process."""
    lag, size = STREAMS[stream]
    if context < lag:
        return math.log(size)
    other = (1 - PROCESS.repeats) / size
    same = PROCESS.repeats + other
    return -same * math.log(same) - (size - 1) * other * math.log(other)


def mean(context):
    return sum(expected(stream, context) for stream in range(4)) / 4


def planted(seed, contexts=CONTEXTS, tokens=1000):
    """Optimal losses of successive tokens of a sequence of its own."""
    ids = PROCESS.sequence(tokens + 300, int(seed))
    positions = np.arange(300, 300 + tokens)
    losses = PROCESS.losses(ids, positions[None], np.array(contexts)[:, None])
    return ids, ModelGroup(("optimum",), losses[None], tuple(contexts), positions, (None,))


def by_stream(text, positions, contexts):
    yield Partition("stream", ("a", "b", "c", "d"), positions % 4)


def test_on_planted_every_interval_covers_the_truth_at_its_rate(monkeypatch):
    """Key tokens are the copies of stream b, whose loss falls by ln 12 to .05 nats."""
    monkeypatch.setattr(context_report, "partitions", by_stream)
    share = (PROCESS.repeats + (1 - PROCESS.repeats) / 12) / 4 + (
        PROCESS.repeats + (1 - PROCESS.repeats) / 9
    ) / 4

    def covered(random):
        ids, one = planted(random.integers(1 << 40))
        found = context_group(one, ReclTerms(), TokenText(ids))
        (curve,) = found.curves
        (keys,) = found.key_tokens
        return (
            holds(curve.losses[2], mean(160)),
            holds(curve.gain, mean(32) - mean(288)),
            holds(found.information[1].nats, mean(96) - mean(160)),
            holds(found.classes[1].curves[0].gain, expected(1, 32) - expected(1, 288)),
            holds(found.classes[3].curves[0].losses[-1], expected(3, 288)),
            holds(keys.share, share),
        )

    assert_nominal(simulated(covered))


def test_on_planted_the_context_that_is_used_is_the_longest_lag():
    _, one = planted(5)
    found = context_group(one, ReclTerms())
    assert found.curves[0].ecl.value == 224  # the first context beyond the lag of 200
    assert (found.curves[0].ecl.low, found.curves[0].ecl.high) == (224, 224)
    assert [step.nats.is_resolved for step in found.information] == [True, True, True, False]


def test_on_planted_mutual_information_is_that_of_the_law():
    """m(j) is known for every j; a copy of lag 16 alone tells of the next 16 tokens."""

    def covered(random):
        _, dense = planted(random.integers(1 << 40), range(1, 64), tokens=1000)
        resampling = Resampling.of(dense.losses[:, ::EVERY], dense.positions, 0)
        (found,) = exponents("optimum", resampling.means(dense.losses[0]), None)
        nats = found.nats
        return [
            holds(nats[row], sum(mean(j) - mean(length + j) for j in range(1, length)))
            for row, length in ((3, 16), (4, 32))
        ]

    assert_nominal(simulated(covered))


@pytest.fixture
def one():
    return group(losses_of(np.random.default_rng(0), [[3.0, 2.5, 2.2, 2.1, 2.0]] * 2), CONTEXTS)


def missing(found):
    return {each.measure: each.reason for each in found.missing}


def test_what_is_missing_is_said_and_nothing_else_fails(one):
    found = context_group(one, ReclTerms())
    assert missing(found)["L²M exponent"] == NOT_DENSE
    assert missing(found)["classes of tokens"] == "the text of the tokens is not known"
    assert missing(found)["ICL score"] == "needs contexts 50 and 500"
    assert found.power_laws
    assert found.view is not None
    shared = context_group(one, ReclTerms(), by_token=False)
    assert missing(shared)["LongPPL"] == "several tokenizers share no tokens"
    assert shared.key_tokens == ()


def test_measures_of_all_models_share_one_resampling(one):
    """Equal models have equal intervals, and no difference at all."""
    same = group(np.concatenate([one.losses[:1]] * 2), CONTEXTS)
    first, second = context_group(same, ReclTerms()).curves
    assert first.losses == second.losses
    assert {(each.low, each.high) for each in second.above_best} == {(0.0, 0.0)}


def test_a_seed_gives_the_same_intervals_again(one):
    again = [context_group(one, ReclTerms(seed=seed)) for seed in (3, 3, 4)]
    assert again[0] == again[1]
    assert again[0] != again[2]


def test_one_model_that_fits_no_power_law_does_not_stop_the_others():
    rising = losses_of(np.random.default_rng(0), [[3.0, 2.5, 2.2, 2.1, 2.0], [2, 2.1, 2.2, 2.3, 3]])
    found = context_group(group(rising, CONTEXTS), ReclTerms())
    assert [law.model for law in found.power_laws] == ["a"]
    assert found.why_missing("power law", "b") == (
        "the loss does not fall from the first context to the last"
    )
    assert found.why_missing("power law", "a") is None
