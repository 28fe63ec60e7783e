"""Readings: bounded in memory, and exact wherever windows are cut."""

import itertools

import pytest
import torch

from txlbench.config.base import AttentionSpan
from txlbench.config.model import ModelConfig
from txlbench.errors import UserError
from txlbench.evaluation.context_reading import BUDGETS, Reading, choose_reading, longest_context

CPU = torch.device("cpu")


def config(**settings):
    return ModelConfig.model_validate(settings)


@pytest.mark.parametrize("kind", [{"encoding": "xl"}, {"encoding": "shaw"}], ids=str)
@pytest.mark.parametrize(
    ("longest", "heads", "windows"), [*itertools.product([1, 16, 700, 4000], [1, 16], [None, 5])]
)
def test_scores_and_tokens_stay_within_the_budget(kind, longest, heads, windows):
    model = config(d_model=64, n_head=heads, **kind)
    reading = choose_reading(model, longest, CPU, windows=windows)
    budget = BUDGETS["cpu"]
    # One query of each window is read at least; segments of a window are as long as each other.
    scores = reading.windows * heads * reading.segment * longest
    assert scores <= max(budget.scores, reading.windows * heads * longest) * (1 + 1 / longest)
    assert windows or reading.windows == 1 or reading.windows * longest <= budget.tokens
    assert reading.windows == (windows or reading.windows)
    assert reading.span == AttentionSpan(mem_len=longest)


def test_windows_of_positions_that_restart_are_never_cut():
    for encoding in ("absolute", "al-rfou"):
        reading = choose_reading(config(encoding=encoding, n_head=16), 5000, CPU)
        assert reading.segment == reading.longest == 5000


def test_an_attention_length_limits_every_query():
    reading = choose_reading(config(), 40, CPU, attention_length=6, clamp_len=4)
    assert reading.span == AttentionSpan(mem_len=6, clamp_len=4, same_length=True)


@pytest.mark.parametrize("kind", ["lstm", "qrnn"])
def test_a_model_without_attention_has_no_attention_length(kind):
    assert choose_reading(config(kind=kind), 40, CPU).segment == 40
    with pytest.raises(UserError, match=f"--attention-length: {kind} has no attention"):
        choose_reading(config(kind=kind), 40, CPU, attention_length=6)


def test_a_memory_shorter_than_the_context_is_refused_where_windows_are_cut():
    with pytest.raises(UserError, match="memory of 39 does not cover a context of 40"):
        Reading(AttentionSpan(mem_len=39), longest=40, segment=20, windows=1)
    Reading(AttentionSpan(mem_len=40), longest=40, segment=20, windows=1)
    Reading(AttentionSpan(mem_len=3, same_length=True), longest=40, segment=20, windows=1)
    Reading(AttentionSpan(mem_len=0), longest=40, segment=40, windows=1)


def test_only_positions_that_restart_limit_the_context():
    limits = {name: longest_context(config(encoding=name), 32) for name in ("xl", "absolute")}
    assert limits == {"xl": None, "absolute": 32}
    assert longest_context(config(encoding="al-rfou"), 32) == 32
    assert longest_context(config(kind="lstm"), 32) is None
