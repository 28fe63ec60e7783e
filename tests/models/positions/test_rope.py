"""Rotary positions and their scalings against transformers' own code; what a cache turns."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from tests.models.subjects import text, transformer
from txlbench.config.base import AttentionSpan, RopeScaling
from txlbench.evaluation.invariants import stream_losses
from txlbench.models.positions import rope

TRAINED = 64
KINDS = {
    None: {"rope_type": "default"},
    "pi": {"rope_type": "linear", "factor": 4.0},
    "ntk": {"rope_type": "dynamic", "factor": 1.0},  # at a length of 4 times the trained one
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED},
}


def theirs(kind: str | None, size: int) -> LlamaConfig:
    parameters = {"rope_theta": 10000.0, **KINDS[kind]}
    longest = TRAINED if kind != "yarn" else 4 * TRAINED
    return LlamaConfig(
        hidden_size=2 * size,
        num_attention_heads=2,
        max_position_embeddings=longest,
        rope_parameters=parameters,
    )


def scaling(kind: str | None) -> RopeScaling | None:
    return None if kind is None else RopeScaling(kind=kind, factor=4.0, trained=TRAINED)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [8, 32, 128])
def test_frequencies_are_those_of_transformers(kind: str | None, size: int):
    config = theirs(kind, size)
    if kind is None:
        expected, stretch = LlamaRotaryEmbedding(config).inv_freq, 1.0
    else:
        made = ROPE_INIT_FUNCTIONS[KINDS[kind]["rope_type"]]
        expected, stretch = made(config, torch.device("cpu"), seq_len=4 * TRAINED)
    mine, my_stretch = rope.scaled_frequencies(size, scaling(kind), torch.device("cpu"))
    assert torch.allclose(mine, expected.double(), rtol=1e-6, atol=0)  # theirs are of 32 bits
    assert my_stretch == pytest.approx(stretch, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_queries_and_keys_turn_as_llamas(kind: str | None):
    model, span = transformer("rope", d_head=8), AttentionSpan(mem_len=0, rope=scaling(kind))
    query, key = torch.randn(2, 2, 3, 9, 8, generator=torch.manual_seed(1)).double()  # [H, B, L, K]
    cos, sin = rope.cached_rotation(5, 9, 8, scaling(kind), torch.float64, "cpu")
    wide = [torch.cat([part, part], dim=-1)[None] for part in (cos, sin)]
    expected = apply_rotary_pos_emb(query.transpose(0, 1), key.transpose(0, 1), *wide)
    for one, other in zip((query, key), expected, strict=True):
        placed = model.encoding.place(0, one, 5, span)
        assert torch.allclose(placed, other.transpose(0, 1), rtol=0, atol=1e-12)


def test_far_positions_lose_nothing():
    """Angles are of 64 bits: those of 32 would be wrong in the third digit a million on."""
    near = rope.cached_rotation(0, 4, 8, None, torch.float32, "cpu")
    turn = rope.cached_rotation(10**6, 4, 8, None, torch.float32, "cpu")
    one, other = (torch.complex(*part) for part in (near, turn))
    between = (other / one).to(torch.complex64)
    assert (between - between[:1]).abs().max() < 1e-6


def test_a_cache_turns_each_key_once_however_far_memory_moves(monkeypatch: pytest.MonkeyPatch):
    model, turned = transformer("rope", n_layer=1), []
    place = rope.RopeEncoding.place
    monkeypatch.setattr(
        rope.RopeEncoding,
        "place",
        lambda *given: (turned.append(given[2].shape[2]), place(*given))[1],
    )
    for cuts in ([4] * 6, [1] * 24):
        turned.clear()
        state = model.evaluation_state(model.initial_state(2, AttentionSpan(mem_len=6)))
        turned.clear()
        stream_losses(model, text(25, batch=2), cuts, state.span, state)
        assert sum(turned) == 2 * 24  # each token's query and key


def test_a_scaling_is_of_the_evaluation_and_stays_in_its_cache():
    model, tokens = transformer("rope", d_head=8), text(25, batch=2)
    plain = AttentionSpan(mem_len=24)
    scaled = AttentionSpan(mem_len=24, rope=RopeScaling(kind="ntk", factor=2.0, trained=6))
    expected, _ = stream_losses(model, tokens, [8, 8, 8], scaled)
    state = model.evaluation_state(model.initial_state(2, scaled))
    got, _ = stream_losses(model, tokens, [8, 8, *[1] * 8], scaled, state)
    assert torch.allclose(got, expected, rtol=0, atol=1e-10)
    assert not torch.allclose(got, stream_losses(model, tokens, [8, 8, 8], plain)[0])
