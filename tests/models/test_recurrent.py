"""LSTM and QRNN: equal to plain references, and fed by the state that the span asks for."""

import pytest
import torch
from torch import nn

from tests.models.subjects import small, text
from txlbench.config.base import AttentionSpan
from txlbench.evaluation.invariants import stream_losses
from txlbench.models.recurrent import linear_scan


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 33])
def test_the_scan_is_the_recurrence_step_by_step(length):
    generator = torch.Generator().manual_seed(length)
    decay, added = (
        torch.rand(2, length, 3, dtype=torch.float64, generator=generator) for _ in range(2)
    )
    expected, cell = [], torch.zeros(2, 3, dtype=torch.float64)
    for step in range(length):
        cell = decay[:, step] * cell + added[:, step]
        expected.append(cell)
    torch.testing.assert_close(linear_scan(decay, added), torch.stack(expected, 1))


def test_the_scan_stays_finite_where_decays_are_zero_or_one():
    decay = torch.tensor([0.0, 1.0]).repeat(1, 600).view(1, -1, 1)
    assert linear_scan(decay, torch.ones_like(decay)).isfinite().all()


def test_lstm_equals_pytorchs():
    model = small(kind="lstm", n_layer=2)
    reference = nn.LSTM(12, 12, num_layers=2, batch_first=True).double()
    for index, layer in enumerate(model.layers):
        for ours, theirs in (
            (layer.w_ih, "weight_ih"),
            (layer.w_hh, "weight_hh"),
            (layer.b_ih, "bias_ih"),
            (layer.b_hh, "bias_hh"),
        ):
            getattr(reference, f"{theirs}_l{index}").data.copy_(ours)
    tokens = text(9, batch=3)
    hidden, state = model(tokens, model.initial_state(3, AttentionSpan(mem_len=1)))
    expected, (last, cell) = reference(model.embedding(tokens))
    torch.testing.assert_close(hidden, expected)
    for index in range(2):
        torch.testing.assert_close(state.layers[index][0], last[index])
        torch.testing.assert_close(state.layers[index][1], cell[index])


def test_qrnn_equals_its_equations():
    model = small(kind="qrnn", n_layer=1)
    layer, tokens = model.layers[0], text(6, batch=2)
    inputs = model.embedding(tokens)
    size = inputs.shape[-1]
    cell, before, expected = torch.zeros(2, size).double(), torch.zeros(2, size).double(), []
    for step in range(6):
        seen = torch.cat([before, inputs[:, step]], dim=-1)
        z, f, o = (seen @ layer.w_gates.T + layer.b_gates).chunk(3, dim=-1)
        cell = f.sigmoid() * cell + (1 - f.sigmoid()) * z.tanh()
        expected.append(o.sigmoid() * cell)
        before = inputs[:, step]
    hidden, state = model(tokens, model.initial_state(2, AttentionSpan(mem_len=1)))
    torch.testing.assert_close(hidden, torch.stack(expected, 1))
    torch.testing.assert_close(state.layers[0][0], cell)


@pytest.mark.parametrize("kind", ["lstm", "qrnn", "gla", "gated-delta"])
def test_recurrence_off_starts_every_segment_from_zero(kind):
    model, tokens = small(kind=kind), text(13, batch=2)
    carried, _ = stream_losses(model, tokens, [6, 6], AttentionSpan(mem_len=1))
    reset, _ = stream_losses(model, tokens, [6, 6], AttentionSpan(mem_len=0))
    alone, _ = stream_losses(model, tokens[:, 6:], [6], AttentionSpan(mem_len=0))
    torch.testing.assert_close(reset[:, 6:], alone)
    torch.testing.assert_close(reset[:, :6], carried[:, :6])
    assert (reset[:, 6:] - carried[:, 6:]).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["lstm", "qrnn", "gla", "gated-delta"])
def test_half_loss_carries_the_state_of_the_next_segments_start(kind):
    model, tokens = small(kind=kind), text(8)
    _, after = model(tokens, model.initial_state(1, AttentionSpan(mem_len=1, stride=5)))
    _, expected = model(tokens[:, :5], model.initial_state(1, AttentionSpan(mem_len=1)))
    for ours, theirs in zip(after.tensors().values(), expected.tensors().values(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_weight_drop_zeroes_recurrent_weights_and_only_in_training():
    model = small(kind="lstm", wdrop=0.5)
    layer = model.layers[0]
    assert torch.equal(layer.weights()[1], layer.w_hh)
    model.train()
    dropped = layer.weights()[1]
    share = (dropped == 0).double().mean()
    assert 0.4 < share < 0.6
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * layer.w_hh[kept])


def test_embedding_dropout_drops_a_word_wherever_it_stands():
    model = small(kind="lstm", dropoute=0.5).train()
    tokens = torch.arange(13).repeat(1, 3)
    embedded = model.embedding(tokens).view(3, 13, -1)
    assert torch.equal(embedded[0], embedded[1])
    gone = (embedded[0] == 0).all(dim=-1)
    assert 0 < gone.sum() < 13
