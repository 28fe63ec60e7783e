"""An architecture of transformers keeps the contract of every model of this suite."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from tests.models.architectures.tiny import TINY, WITH_MEMORY, tiny
from txlbench.config.base import AttentionSpan
from txlbench.evaluation import invariants
from txlbench.models.factory import build_model
from txlbench.models.interface import LanguageModel

SIZE = 50
ATTENDING = ("llama", "gpt_neox", "gemma2")
ROUNDING = 1e-5
"""Nats: norms, rotations and scans are computed in float32 inside."""


def lively(name: str, **changes: object) -> LanguageModel:
    """A model in float64 whose predictions depend on what it reads."""
    torch.manual_seed(1)
    model = build_model(tiny(name, **changes), SIZE).double().eval()
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if weight.dim() == 2 and "A_log" not in key:
                weight.normal_(0, 0.3)
    return model


def tokens(rows: int = 3, length: int = 17) -> torch.Tensor:
    return torch.randint(SIZE, (rows, length), generator=torch.Generator().manual_seed(2))


def read(model, tokens_BT, cuts, span):
    return invariants.stream_losses(model, tokens_BT, cuts, span)[0].detach()


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_losses_with_memory_equal_one_pass(name):
    model = lively(name)
    assert invariants.segments(model, tokens(), (5, 7, 4)) < ROUNDING
    assert invariants.batches(model, tokens(), (6, 6, 4), AttentionSpan(mem_len=6)) < ROUNDING
    assert invariants.memory_purity(model, tokens(), (6, 6, 4), AttentionSpan(mem_len=6)) == 0


@pytest.mark.parametrize("name", [name for name in TINY if name != "bert"])
def test_losses_are_those_of_the_whole_model(name):
    """With what follows the last matrix: Gemma 2 caps its logits, here at 1."""
    model, tokens_BT = lively(name), tokens()
    mine = read(model, tokens_BT, [16], AttentionSpan(mem_len=0))
    logits_BTV = model.module(input_ids=tokens_BT[:, :-1], use_cache=False).logits
    theirs = cross_entropy(
        logits_BTV.flatten(0, 1).double(), tokens_BT[:, 1:].flatten(), reduction="none"
    )
    assert torch.allclose(mine.flatten().double(), theirs.detach(), atol=ROUNDING)
    found = invariants.dense_softmax(model, tokens_BT, AttentionSpan(mem_len=0))
    assert found < ROUNDING


@pytest.mark.parametrize("name", ATTENDING)
def test_an_attention_length_is_kept_wherever_segments_are_cut(name):
    model, span = lively(name, num_hidden_layers=1), AttentionSpan(mem_len=3, same_length=True)
    whole, parts = (read(model, tokens(), cuts, span) for cuts in ([16], [5, 1, 4, 6]))
    assert torch.allclose(whole, parts, atol=ROUNDING)
    reach = invariants.influence(model, tokens()[:1], [5, 1, 4, 6], span, SIZE)
    near = torch.ones_like(reach).triu() - torch.ones_like(reach).triu(3)
    assert ((reach > ROUNDING) == near.bool()).all()


@pytest.mark.parametrize("name", ATTENDING)
def test_memory_is_the_newest_keys(name):
    """One layer that remembers M tokens sees what a window of those tokens and itself shows."""
    model, tokens_BT = lively(name, num_hidden_layers=1), tokens()
    carried = read(model, tokens_BT, [8, 4, 4], AttentionSpan(mem_len=4))[:, 12:]
    alone = read(model, tokens_BT[:, 8:], [8], AttentionSpan(mem_len=0))[:, 4:]
    assert torch.allclose(carried, alone, atol=ROUNDING)


@pytest.mark.parametrize("name", ["llama", "gemma2", "mamba2"])
def test_a_stream_that_forgets_starts_afresh(name):
    model, tokens_BT, span = lively(name), tokens(), AttentionSpan(mem_len=6)
    _, state = invariants.stream_losses(model, tokens_BT, [8], span)
    forgetful = state.reset(torch.tensor([False, True, False]))
    found, _ = invariants.stream_losses(model, tokens_BT[:, 8:], [4, 4], span, forgetful)
    remembering = read(model, tokens_BT, [8, 4, 4], span)[:, 8:]
    afresh = read(model, tokens_BT[:, 8:], [4, 4], span)
    assert torch.allclose(found[0], remembering[0], atol=ROUNDING)
    assert torch.allclose(found[1], afresh[1], atol=ROUNDING)
    assert not torch.allclose(found[1], remembering[1], atol=ROUNDING)


def test_half_loss_remembers_the_first_states_of_a_segment():
    model, tokens_BT = lively("llama"), tokens()
    _, state = model(tokens_BT[:, :8], model.initial_state(3, AttentionSpan(mem_len=8, stride=4)))
    _, first = model(tokens_BT[:, :4], model.initial_state(3, AttentionSpan(mem_len=8)))
    assert state.seen == first.seen == 4
    for name, tensor in first.tensors().items():
        assert torch.allclose(state.tensors()[name], tensor)


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_a_state_comes_back_from_its_tensors(name):
    model, tokens_BT, span = lively(name), tokens(), AttentionSpan(mem_len=6)
    _, state = invariants.stream_losses(model, tokens_BT, [6, 2], span)
    again = model.initial_state(3, span).replace(dict(state.tensors()))
    one, other = (
        invariants.stream_losses(model, tokens_BT[:, 8:], [8], span, each)[0]
        for each in (state, again)
    )
    assert torch.equal(one, other)
    assert not any(tensor.requires_grad for tensor in state.tensors().values())
