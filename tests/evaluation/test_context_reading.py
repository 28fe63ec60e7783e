"""Readers of windows: bounded in memory, and exact wherever windows are cut."""

import itertools

import numpy as np
import pytest
import torch

from tests.models.subjects import text, transformer
from txlbench.config.base import AttentionSpan
from txlbench.config.model import ModelConfig
from txlbench.errors import UserError
from txlbench.evaluation.context_reading import SCORES, TOKENS, WindowReader, read_windows
from txlbench.evaluation.invariants import stream_losses

CPU = torch.device("cpu")
COLUMNS = np.array([19, 39])


def reading(model, longest, **asked):
    return read_windows(None, model, np.array([longest]), CPU, **asked)


def config(**settings):
    return ModelConfig.model_validate(settings)


@pytest.mark.parametrize("kind", [{"encoding": "xl"}, {"encoding": "shaw"}], ids=str)
@pytest.mark.parametrize(
    ("longest", "heads", "windows"), [*itertools.product([1, 16, 700, 4000], [1, 16], [None, 5])]
)
def test_scores_and_tokens_stay_within_the_budget(kind, longest, heads, windows):
    model = config(d_model=64, n_head=heads, **kind)
    reader, at_once = reading(model, longest, windows=windows)
    # One query of each window is read at least; segments of a window are as long as each other.
    scores = at_once * heads * reader.segment * longest
    assert scores <= max(SCORES["cpu"], at_once * heads * longest) * (1 + 1 / longest)
    assert windows or at_once == 1 or at_once * longest <= TOKENS["cpu"]
    assert at_once == (windows or at_once)
    assert reader.span == AttentionSpan(mem_len=longest)


def test_windows_of_positions_that_restart_are_never_cut():
    for encoding in ("absolute", "al-rfou"):
        reader, _ = reading(config(encoding=encoding, n_head=16), 5000)
        assert reader.segment == 5000


def test_an_attention_length_limits_every_query():
    reader, _ = reading(config(), 40, attention_length=6, clamp_len=4)
    assert reader.span == AttentionSpan(mem_len=6, clamp_len=4, same_length=True)


@pytest.mark.parametrize("kind", ["lstm", "qrnn", "gla", "gated-delta"])
def test_a_model_without_attention_has_no_attention_length(kind):
    assert reading(config(kind=kind), 40)[0].segment == 40
    with pytest.raises(UserError, match=f"--attention-length: {kind} has no attention"):
        reading(config(kind=kind), 40, attention_length=6)


def test_a_memory_shorter_than_the_context_is_refused_where_windows_are_cut():
    with pytest.raises(UserError, match="memory of 39 does not cover a context of 40"):
        WindowReader(None, AttentionSpan(mem_len=39), 20, COLUMNS)
    WindowReader(None, AttentionSpan(mem_len=40), 20, COLUMNS)
    WindowReader(None, AttentionSpan(mem_len=3, same_length=True), 20, COLUMNS)
    WindowReader(None, AttentionSpan(mem_len=0), 40, COLUMNS)


@pytest.mark.parametrize("memory", ["shift", "compressive"])
def test_a_memory_that_works_by_segments_is_read_as_trained(memory: str):
    model, tokens = transformer("rope", memory=memory), text(21, batch=2)
    span, contexts = AttentionSpan(mem_len=6), np.arange(1, 21)
    reader, _ = read_windows(model, model.config, contexts, CPU, trained=(span, 5))
    got = reader.token_losses(tokens).double()
    for context in contexts.tolist():
        cuts = [5] * (context // 5) + [context % 5] * (context % 5 > 0)
        alone, _ = stream_losses(model, tokens[:, : context + 1], cuts, span)
        assert torch.allclose(got[:, context - 1], alone[:, -1], rtol=0, atol=1e-5)  # of 32 bits
    with pytest.raises(UserError, match="is read as trained"):
        read_windows(model, model.config, contexts, CPU, 4, trained=(span, 5))
