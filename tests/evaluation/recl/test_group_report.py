"""What is said of a group, as a whole."""

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest

from tests.cli.trial import environment
from tests.evaluation.recl.groups import from_losses, stopping_at_300
from tests.evaluation.recl.simulated import losses as simulated
from txlbench.errors import UserError
from txlbench.evaluation.recl.group_report import group_report, warnings
from txlbench.evaluation.recl.metric import ReclTerms

TERMS = ReclTerms()


@pytest.mark.parametrize("models", [1, 2, 3])
def test_a_gain_that_stops_at_300_is_300_for_every_r(models):
    found = group_report(stopping_at_300(models), TERMS).content
    lines = found["results"]
    assert [(line["model"], line["r"]) for line in lines] == [
        (name, r) for name in "abc"[:models] for r in (0.1, 0.5, 1.0)
    ]
    for line in lines:
        assert line["recl"] == line["recl_above_null"] == 300
        assert line["interval"] == line["interval_above_null"] == [300, 300]
        assert line["shares"] == {"300": 1.0}
        assert not line["capped"]
        assert line["p"] == [0.00001, 0.00001, 1.0, 1.0]


def test_it_is_plain_json_of_the_promised_shape():
    found = group_report(stopping_at_300(), TERMS).content
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert {"models", "subgroups", "sensitivity", "ecl", "results"} <= set(found)
    promised = "model r recl capped limited_by gains net_gains p recl_above_null interval"
    for line in found["results"]:
        assert set(promised.split()) <= set(line)
        assert len(line["gains"]) == len(line["net_gains"]) == len(line["p"]) == 4


def test_longest_limits_every_length():
    group = dataclasses.replace(stopping_at_300(), longest=(128, None))
    found = group_report(group, TERMS).content
    limited, free = found["results"][0], found["results"][3]
    assert (limited["recl"], limited["limited_by"]) == (128, "longest")
    assert limited["recl_above_null"] == 128
    assert limited["interval"] == [128, 128]
    assert (free["recl"], free["limited_by"]) == (300, None)
    assert found["ecl"] == {"a": 128, "b": 300}
    lines = found["subgroups"] + found["sensitivity"]
    assert all(line["recl"] <= 128 for line in lines if line["model"] == "a")


def test_the_last_context_caps():
    found = group_report(stopping_at_300(contexts=(100, 200, 300)), TERMS).content
    assert all(line["capped"] for line in found["results"])


def test_few_hard_tokens_are_warned_of():
    found = group_report(stopping_at_300(tokens=1000), TERMS).content
    assert found["warnings"] == [
        "r = 0.1 is 100 of 1,000 tokens, fewer than 500: the RECL is uncertain"
    ]
    assert group_report(stopping_at_300(tokens=5000), TERMS).content["warnings"] == []
    assert group_report(stopping_at_300(tokens=4990), TERMS).content["warnings"] != []


def test_negative_losses_are_warned_of():
    group = stopping_at_300(tokens=5000)
    found = group_report(dataclasses.replace(group, losses=-group.losses), TERMS).content
    assert any("b has losses below 0" in warning for warning in found["warnings"])


@pytest.mark.parametrize(("harm", "warned"), [(0.02, True), (0.005, False)])
def test_longer_contexts_that_harm_are_warned_of(harm, warned):
    losses = stopping_at_300().losses.copy()
    losses[1, 3:] += harm
    found = [line for line in warnings(from_losses(losses), TERMS) if "best at" in line]
    expected = "b is best at a context of 300; at 500 its perplexity is 2.0 % higher"
    assert [line.startswith(expected) for line in found] == [True] * warned


def test_the_seed_decides_everything():
    group = from_losses(simulated(np.random.default_rng(0), 1000, [0.02, 0.012], models=2))
    one = group_report(group, TERMS).content
    assert group_report(group, TERMS).content == one
    other = group_report(group, dataclasses.replace(TERMS, seed=1)).content
    assert other["results"][2]["gains"] == one["results"][2]["gains"]
    assert other["results"][2]["shares_above_null"] != one["results"][2]["shares_above_null"]


def test_too_few_tokens():
    with pytest.raises(UserError, match="too few tokens"):
        group_report(stopping_at_300(tokens=700), TERMS)


@pytest.mark.parametrize("spacing", [pytest.param(1, marks=pytest.mark.full), 16])
def test_four_models_take_seconds(spacing):
    """4 models, 2,000 tokens, 16 contexts, 3 shares: under 3 s of one core in the worst case,
    in which every walk goes to the end."""
    program = f"""
import time
import numpy as np
from tests.cli.trial import environment
from tests.evaluation.recl.groups import from_losses
from tests.evaluation.recl.simulated import losses
from txlbench.evaluation.recl.metric import ReclTerms
from txlbench.evaluation.recl.group_report import group_report, warnings
random = np.random.default_rng(0)
group = from_losses(losses(random, 2000, [0.05] * 15, models=4), spacing={spacing})
start = time.process_time()
found = group_report(group, ReclTerms()).content
print(time.process_time() - start)
assert all(line["capped"] for line in found["results"])
"""
    one_thread = dict.fromkeys(["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"], "1")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment(), **one_thread},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < 3


def test_standard_errors_of_losses_count_blocks_of_tokens():
    """Independent tokens have the usual error; losses that repeat 16 times four times that."""
    noise = np.random.default_rng(3).normal(3, 0.5, (2, 6400))
    repeated = noise[:, ::16].repeat(16, axis=1)
    group = from_losses(np.stack([noise, repeated]))
    errors = group_report(group, TERMS).loss_errors
    usual = 0.5 / 6400**0.5
    assert errors["a"] == pytest.approx([usual, usual], rel=0.4)
    assert errors["b"] == pytest.approx([4 * usual, 4 * usual], rel=0.4)
