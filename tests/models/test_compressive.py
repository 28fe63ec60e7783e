"""Compressive memory: how many states it keeps, and what its compressor learns from."""

from typing import Any

import pytest
import torch

from tests.models.subjects import text, transformer
from txlbench.config.base import AttentionSpan
from txlbench.evaluation.invariants import stream_losses


def model_of(**settings: Any) -> Any:
    return transformer("xl", memory="compressive", **settings)


@pytest.mark.parametrize("mem_len", [1, 2, 5, 8, 9])
@pytest.mark.parametrize("rate", [1, 2, 3])
def test_no_more_than_mem_len_states_are_kept_half_of_them_made(mem_len: int, rate: int):
    model, span = model_of(compress_rate=rate), AttentionSpan(mem_len=mem_len)
    state, full = model.initial_state(1, span), 0
    for tokens in text(60).split(4, dim=1):
        _, state = model(tokens, state)
        recent, made = state.layers[0].shape[1], state.compressed[0].shape[1]
        assert recent + made <= mem_len
        assert recent <= mem_len - mem_len // 2
        full = max(full, recent + made)
    assert full == mem_len


def trained(model: Any, span: AttentionSpan) -> tuple[torch.Tensor, torch.Tensor]:
    losses, state = stream_losses(model.train(), text(13, batch=2), [6, 6], span)
    return losses.sum(), model.memory_loss(state)


@pytest.mark.parametrize("pre_lnorm", [False, True])
def test_the_compressor_learns_by_its_own_loss_alone_and_nothing_else_by_it(pre_lnorm: bool):
    model, span = model_of(pre_lnorm=pre_lnorm), AttentionSpan(mem_len=4)
    losses, of_memory = trained(model, span)
    own = {name for name, _ in model.named_parameters() if name.startswith("compressor.")}
    for loss, expected in ((losses, False), (of_memory, True)):
        model.zero_grad(set_to_none=True)
        loss.backward(retain_graph=True)
        touched = {name for name, p in model.named_parameters() if p.grad is not None}
        assert bool(touched & own) == expected
        assert not expected or touched == own


def test_the_loss_is_what_attention_loses():
    """With weights that copy the last of each block, and a memory that repeats itself, nothing."""
    model, span = model_of(compress_rate=2, n_layer=1), AttentionSpan(mem_len=4)
    convolution = model.compressor.convolutions[0]
    with torch.no_grad():
        convolution.weight.zero_()
        convolution.weight[:, :, -1] = torch.eye(12)
        convolution.bias.zero_()
    tokens = torch.full((1, 13), 3)
    _, state = stream_losses(model.train(), tokens, [6, 6], span)
    assert 0 <= model.memory_loss(state).item() < 1e-20
    assert trained(model, span)[1] > 1e-4


def test_there_is_no_loss_where_nothing_is_learned():
    model, span = model_of(), AttentionSpan(mem_len=4)
    with torch.no_grad():
        assert trained(model, span)[1] is None
    _, state = stream_losses(model.eval(), text(13), [6, 6], span)
    assert model.memory_loss(state) is None
