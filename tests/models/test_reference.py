"""The core equals a slow transformer written from the paper's equations, term by term."""

from itertools import product
from typing import Any

import pytest
import torch

from tests.models.reference import SlowTransformer, sinusoid
from tests.models.subjects import text, transformer
from txlbench.config.base import AttentionSpan, RopeScaling
from txlbench.config.catalogue import ENCODINGS
from txlbench.evaluation.invariants import stream_losses

TOLERANCE = 1e-10
CUTS = [4, 4, 3]
LONG = [4, 4, 4, 3, 4, 1]

SPANS = {
    "memory shorter than a segment": AttentionSpan(mem_len=3),
    "memory longer than a segment": AttentionSpan(mem_len=6),
    "no memory": AttentionSpan(mem_len=0),
    "clamped": AttentionSpan(mem_len=6, clamp_len=2),
    "clamped to nothing": AttentionSpan(mem_len=6, clamp_len=0),
    "same length": AttentionSpan(mem_len=5, same_length=True),
    "same length, short memory": AttentionSpan(mem_len=2, same_length=True),
    "half loss": AttentionSpan(mem_len=5, stride=2),
}


def assert_equals_reference(
    encoding: str, span: AttentionSpan, cuts: list[int] = CUTS, **settings: Any
) -> None:
    model = transformer(encoding, **settings)
    tokens, batch = text(sum(cuts) + 1, batch=2), 2
    got, _ = stream_losses(model, tokens, cuts, span)
    for row in range(batch):
        slow, start = SlowTransformer(model, span), 0
        stream = tokens[row].tolist()
        for cut in cuts:
            expected = slow.losses(stream[start : start + cut], stream[start + 1 : start + cut + 1])
            difference = got[row, start : start + cut] - torch.tensor(expected, dtype=torch.float64)
            assert difference.abs().max() < TOLERANCE
            start += cut


@pytest.mark.parametrize("span", list(SPANS.values()), ids=list(SPANS))
@pytest.mark.parametrize(("untie_r", "pre_lnorm"), list(product([False, True], repeat=2)))
def test_xl_equals_the_equations(span: AttentionSpan, untie_r: bool, pre_lnorm: bool):
    assert_equals_reference("xl", span, untie_r=untie_r, pre_lnorm=pre_lnorm)


@pytest.mark.parametrize("span", list(SPANS.values()), ids=list(SPANS))
@pytest.mark.parametrize("max_distance", [0, 2, 40], ids=lambda d: f"max_distance={d}")
@pytest.mark.parametrize("shaw_bias", [False, True])
def test_shaw_equals_the_equations_beyond_max_distance_too(
    span: AttentionSpan, max_distance: int, shaw_bias: bool
):
    assert_equals_reference("shaw", span, max_distance=max_distance, shaw_bias=shaw_bias)


@pytest.mark.parametrize("span", list(SPANS.values()), ids=list(SPANS))
@pytest.mark.parametrize("encoding", ["absolute", "al-rfou", "learned"])
def test_absolute_encodings_restart_at_every_segment(span: AttentionSpan, encoding: str):
    assert_equals_reference(encoding, span)


MEMORIES = {
    "shift": ({"memory": "shift"}, SPANS),
    "compressive": ({"memory": "compressive", "compress_rate": 2}, SPANS),
    "compressive, by 3": (
        {"memory": "compressive", "compress_rate": 3, "pre_lnorm": True},
        {"long": AttentionSpan(mem_len=8), "odd": AttentionSpan(mem_len=5, same_length=True)},
    ),
    "sinks": (
        {"memory": "sinks"},
        {
            "memory": AttentionSpan(mem_len=6, sinks=2),
            "same length": AttentionSpan(mem_len=5, same_length=True, sinks=3),
            "half loss": AttentionSpan(mem_len=5, stride=2, sinks=1),
        },
    ),
}


@pytest.mark.parametrize("encoding", ["xl", "rope", "alibi", "fox"])
@pytest.mark.parametrize("memory", MEMORIES)
def test_every_memory_equals_its_equations(memory: str, encoding: str):
    settings, spans = MEMORIES[memory]
    for span in spans.values():
        if span.clamp_len is None or ENCODINGS[encoding].clamps:
            assert_equals_reference(encoding, span, LONG, **settings)


SCALINGS = [
    None,
    RopeScaling(kind="pi", factor=2.5, trained=6),
    RopeScaling(kind="ntk", factor=4.0, trained=6),
    RopeScaling(kind="yarn", factor=3.0, trained=6),
    RopeScaling(kind="yarn", factor=8.0, trained=4000),
]


@pytest.mark.parametrize("span", list(SPANS.values()), ids=list(SPANS))
@pytest.mark.parametrize("encoding", ["alibi", "fox", "kerple", "none", "rope", "t5"])
@pytest.mark.parametrize("pre_lnorm", [False, True])
def test_todays_encodings_equal_their_equations(
    span: AttentionSpan, encoding: str, pre_lnorm: bool
):
    if span.clamp_len is None or ENCODINGS[encoding].clamps:
        assert_equals_reference(encoding, span, pre_lnorm=pre_lnorm)


@pytest.mark.parametrize("scaling", SCALINGS, ids=str)
@pytest.mark.parametrize("d_head", [5, 8])
def test_scaled_rotary_positions_equal_theirs(scaling: RopeScaling | None, d_head: int):
    assert_equals_reference("rope", AttentionSpan(mem_len=6, rope=scaling), d_head=d_head)


def test_t5_has_buckets_for_far_distances_too():
    model, tokens, span = transformer("t5", n_layer=1), text(61), AttentionSpan(mem_len=0)
    got, _ = stream_losses(model, tokens, [60], span)
    expected = SlowTransformer(model, span).losses(tokens[0, :60].tolist(), tokens[0, 1:].tolist())
    assert torch.allclose(
        got[0], torch.tensor(expected, dtype=torch.float64), rtol=0, atol=TOLERANCE
    )


@pytest.mark.parametrize("n_head", [1, 3, 6])
def test_alibi_has_a_slope_for_any_number_of_heads(n_head: int):
    assert_equals_reference("alibi", AttentionSpan(mem_len=6), n_head=n_head)


@pytest.mark.parametrize("d_model", [11, 12])
def test_an_odd_width_drops_the_last_cosine(d_model: int):
    assert_equals_reference("xl", AttentionSpan(mem_len=3), d_model=d_model)
    assert len(sinusoid(3, d_model)) == d_model
