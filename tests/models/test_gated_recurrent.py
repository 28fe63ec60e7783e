"""GLA and Gated DeltaNet: their layers equal their equations token by token, and transformers'."""

import pytest
import torch
from torch.nn.functional import conv1d, layer_norm, logsigmoid, silu, softplus

from tests.models.subjects import small, text
from txlbench.config.base import AttentionSpan
from txlbench.config.kinds import CHUNK
from txlbench.evaluation.invariants import stream_losses

KINDS = ["gla", "gated-delta"]
SIZES = {"n_layer": 1, "n_head": 2, "d_head": 6, "d_inner": 16}
every_kind = pytest.mark.parametrize("kind", KINDS)


def gla_by_hand(mixer, input_TD):
    """One stream from an empty state, head by head, in the letters of the paper."""
    keys, values, size = mixer.keys, mixer.values, mixer.key_size
    x = input_TD @ mixer.in_net.weight.T
    q, k, v, gate, low = x.split(
        [keys, keys, values, values, x.shape[1] - 2 * keys - 2 * values], 1
    )
    alpha = logsigmoid(low @ mixer.decay_net.weight.T + mixer.decay_net.bias).exp() ** (1 / 16)
    return _read(
        mixer,
        gate,
        lambda t, h, matrix: (
            torch.diag(alpha[t, h * size : (h + 1) * size]) @ matrix
            + torch.outer(_head(k, t, h, size), _head(v, t, h, mixer.value_size))
        ),
        lambda t, h: _head(q, t, h, size) / size**0.5,
    )


def delta_by_hand(mixer, input_TD):
    keys, values, size, heads = mixer.keys, mixer.values, mixer.key_size, mixer.heads
    x = input_TD @ mixer.in_net.weight.T
    mixed, gate, a, b = x.split([2 * keys + values, values, heads, heads], 1)
    kernel = mixer.conv_weight.T[:, None]
    mixed = silu(conv1d(mixed.T[None], kernel, padding=3, groups=len(kernel)))[0, :, : len(x)].T
    q, k, v = mixed.split([keys, keys, values], 1)
    alpha = (-mixer.decay_rate.exp() * softplus(a + mixer.decay_bias)).exp()
    beta, unit = b.sigmoid(), torch.eye(size, dtype=x.dtype)

    def step(t, h, matrix):
        key = _unit(_head(k, t, h, size))
        erased = (unit - beta[t, h] * torch.outer(key, key)) @ matrix
        written = beta[t, h] * torch.outer(key, _head(v, t, h, mixer.value_size))
        return alpha[t, h] * erased + written

    return _read(mixer, gate, step, lambda t, h: _unit(_head(q, t, h, size)) / size**0.5)


def _head(values_TX, t, h, size):
    return values_TX[t, h * size : (h + 1) * size]


def _unit(vector):
    return vector / (vector.square().sum() + 1e-6).sqrt()


def _read(mixer, gate, step, query):
    """Steps every head's state, reads it, normalises, gates and projects."""
    rows = []
    for h in range(mixer.heads):
        matrix = torch.zeros(mixer.key_size, mixer.value_size, dtype=gate.dtype)
        for t in range(len(gate)):
            matrix = step(t, h, matrix)
            read = matrix.T @ query(t, h)
            rows.append(read / (read.square().mean() + 1e-6).sqrt() * mixer.read_norm.weight)
    read_TX = torch.stack(rows).view(mixer.heads, len(gate), -1).transpose(0, 1).flatten(1)
    return (read_TX * silu(gate)) @ mixer.o_net.weight.T


@every_kind
@pytest.mark.parametrize("length", [5, CHUNK + 4])
def test_a_model_equals_its_equations_token_by_token(kind, length):
    model, tokens = small(kind=kind, **SIZES), text(length)
    (layer,) = model.layers
    mix = {"gla": gla_by_hand, "gated-delta": delta_by_hand}[kind]

    def norm(part, hidden):
        return layer_norm(hidden, hidden.shape[-1:], part.weight, part.bias)

    hidden = model.embedding(tokens)[0]
    hidden = hidden + mix(layer.mixer, norm(layer.mixer_norm, hidden))
    inner = layer.feed_forward.inner(norm(layer.feed_forward_norm, hidden)).relu()
    expected = norm(model.output_norm, hidden + layer.feed_forward.outer(inner))
    got, _ = model(tokens, model.initial_state(1, AttentionSpan(mem_len=1)))
    torch.testing.assert_close(got[0], expected, rtol=0, atol=1e-9)


@every_kind
def test_token_by_token_with_its_state_equals_one_pass(kind):
    """The way of generation: one token at a time from the state."""
    model, tokens, span = (
        small(kind=kind, **SIZES),
        text(CHUNK + 9, batch=2),
        AttentionSpan(mem_len=1),
    )
    whole, last = stream_losses(model, tokens, [CHUNK + 8], span)
    steps, state = stream_losses(model, tokens, [1] * (CHUNK + 8), span)
    torch.testing.assert_close(steps, whole, rtol=0, atol=1e-9)
    for got, expected in zip(state.tensors().values(), last.tensors().values(), strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)


@every_kind
def test_states_stay_in_float32_under_autocast(kind):
    model, tokens, span = small(kind=kind, **SIZES).float(), text(9), AttentionSpan(mem_len=1)
    with torch.autocast("cpu", torch.bfloat16):
        _, state = stream_losses(model, tokens, [4, 4], span)
    assert {tensor.dtype for tensor in state.tensors().values()} == {torch.float32}


def test_the_mixer_of_gated_delta_is_transformers():
    """Qwen3-Next's layer with our weights; it orders them by head and decays by log A as we do."""
    module = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    model = small(kind="gated-delta", **SIZES, d_model=12).float()
    ours = model.layers[0].mixer
    config = module.Qwen3NextConfig(
        hidden_size=12,
        linear_num_value_heads=2,
        linear_num_key_heads=2,
        linear_key_head_dim=ours.key_size,
        linear_value_head_dim=ours.value_size,
        linear_conv_kernel_dim=4,
        num_hidden_layers=1,
        layer_types=["linear_attention"],
    )
    theirs = module.Qwen3NextGatedDeltaNet(config, 0)
    q, k, v, gate, a, b = ours.in_net.weight.split(
        [ours.keys, ours.keys, ours.values, ours.values, 2, 2]
    )
    by_head = [part.unflatten(0, (2, -1)) for part in (q, k, v, gate)]
    weights = {
        "in_proj_qkvz.weight": torch.cat(by_head, 1).flatten(0, 1),
        "in_proj_ba.weight": torch.stack([b, a], 1).flatten(0, 1),
        "conv1d.weight": ours.conv_weight.T[:, None],
        "dt_bias": ours.decay_bias,
        "A_log": ours.decay_rate,
        "norm.weight": ours.read_norm.weight,
        "out_proj.weight": ours.o_net.weight,
    }
    theirs.load_state_dict(weights)
    hidden = torch.randn(3, 70, 12, generator=torch.Generator().manual_seed(1))
    got, _ = ours(hidden, ours.initial(3))
    torch.testing.assert_close(got, theirs(hidden), rtol=0, atol=2e-5)
