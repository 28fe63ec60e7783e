"""Memory holds the newest states of each layer's input, whatever the lengths."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.subjects import text, transformer
from txlbench.config.base import AttentionSpan
from txlbench.models.memory import Memory, carried, with_memory

ENCODINGS = ["xl", "shaw", "absolute", "al-rfou"]


def run_and_record(
    encoding: str, segments: list[Tensor], span: AttentionSpan
) -> tuple[Memory, list[Any]]:
    """The state after the segments, and for each segment the input that each block got."""
    model, seen = transformer(encoding), []
    for block in model.blocks:
        block.register_forward_pre_hook(lambda _, given: seen.append(given[1].detach().clone()))
    state = model.initial_state(2, span)
    for segment in segments:
        _, state = model(segment, state)
    layers = len(model.blocks)
    return state, [seen[start : start + layers] for start in range(0, len(seen), layers)]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("lengths", [[3, 3, 3], [5, 5, 2], [1, 1, 1]], ids=str)
@pytest.mark.parametrize("mem_len", [0, 1, 4, 7, 100])
def test_memory_is_the_newest_min_of_mem_len_and_seen_states(
    encoding: str, lengths: list[int], mem_len: int
):
    segments = list(text(sum(lengths), batch=2).split(lengths, dim=1))
    state, inputs = run_and_record(encoding, segments, AttentionSpan(mem_len=mem_len))
    kept = min(mem_len, sum(lengths))
    for layer, remembered in enumerate(state.layers):
        seen = torch.cat([segment[layer] for segment in inputs], dim=1)
        assert torch.equal(remembered, seen[:, seen.shape[1] - kept :])


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("mem_len", [0, 2, 4, 6, 100])
@pytest.mark.parametrize("tgt_len", [1, 4, 5])
def test_with_a_stride_memory_ends_where_the_next_segment_starts(
    encoding: str, mem_len: int, tgt_len: int
):
    stride, total = tgt_len - tgt_len // 2, 14
    tokens = text(total, batch=2)
    starts = range(0, total - tgt_len + 1, stride)
    segments = [tokens[:, start : start + tgt_len] for start in starts]
    state, inputs = run_and_record(
        encoding, segments, AttentionSpan(mem_len=mem_len, stride=stride)
    )
    kept = min(mem_len, len(starts) * stride)
    for layer, remembered in enumerate(state.layers):
        seen = torch.cat([segment[layer][:, :stride] for segment in inputs], dim=1)
        assert torch.equal(remembered, seen[:, seen.shape[1] - kept :])


def test_a_last_segment_shorter_than_the_stride_is_remembered_whole():
    context = torch.arange(7.0).view(1, 7, 1)
    assert carried(context, 2, AttentionSpan(mem_len=4, stride=3))[0, :, 0].tolist() == [3, 4, 5, 6]


def test_an_empty_memory_adds_no_key():
    model = transformer("xl")
    state = model.initial_state(3, AttentionSpan(mem_len=4))
    assert [layer.shape for layer in state.layers] == [(3, 0, 12), (3, 0, 12)]
    segment = torch.ones(3, 2, 12)
    assert with_memory(torch.empty(3, 0, 12), segment) is segment


def test_memory_takes_the_type_of_the_segment():
    joined = with_memory(torch.zeros(1, 2, 3), torch.ones(1, 2, 3, dtype=torch.bfloat16))
    assert joined.dtype == torch.bfloat16
    assert joined[0, :, 0].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("memory", ["xl", "shift"])
@pytest.mark.parametrize("length", [0, 3, 6, 100])
def test_a_step_may_see_a_part_of_the_memory_and_keeps_all_of_it(memory: str, length: int):
    model, span = transformer("xl", memory=memory), AttentionSpan(mem_len=6)
    first, second, third = text(12, batch=2).split(4, dim=1)
    _, state = model(first, model.initial_state(2, span))
    _, state = model(second, state)
    part = Memory(tuple(layer[:, max(0, 6 - length) :] for layer in state.layers), span)
    got, after = model(third, state.seeing(length))
    expected, _ = model(third, part)
    assert torch.equal(got, expected)
    assert [layer.shape[1] for layer in after.layers] == [6, 6]
    assert torch.equal(after.layers[0][:, :2], state.layers[0][:, 4:])
    assert after.visible is None
