"""The transformer's memory: cached inputs of each layer (paper section 3.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from txlbench.config.base import AttentionSpan

CONTIGUOUS = torch.contiguous_format


@dataclass(frozen=True)
class Memory:
    """The newest min(mem_len, seen) inputs of each layer, oldest first, without gradient.

    Attributes:
        layers: one tensor [B, M, D] a layer; M grows from 0 to mem_len.
        span: how the model looks back.
        valid_len_B: how many of the M states, the newest ones, each stream may still see; None
            for all of them, in every stream.
        compressed: states made of older ones, one tensor [B, C, D] a layer (`models.compressive`).
        visible: how many of the M states, the newest, the next segment sees; None for all.
        loss: of the states that were made, in nats' place; None without any.
    """

    layers: tuple[Tensor, ...]
    span: AttentionSpan
    valid_len_B: Tensor | None = None
    compressed: tuple[Tensor, ...] = ()
    visible: int | None = None
    loss: Tensor | None = None

    def tensors(self) -> Mapping[str, Tensor]:
        named = {f"layer{index}": layer for index, layer in enumerate(self.layers)}
        named |= {f"compressed{index}": layer for index, layer in enumerate(self.compressed)}
        return named if self.valid_len_B is None else {**named, "known": self.valid_len_B}

    def replace(self, tensors: Mapping[str, Tensor]) -> "Memory":
        layers = tuple(tensors[f"layer{index}"] for index in range(len(self.layers)))
        compressed = tuple(tensors[f"compressed{index}"] for index in range(len(self.compressed)))
        return Memory(layers, self.span, tensors.get("known"), compressed)

    def seeing(self, length: int) -> "Memory":
        """The same states, of which the next segment sees the newest `length`."""
        return replace(self, visible=length)

    def seen(self, layer: int) -> Tensor:
        """The states of `layer` that the next segment sees: [B, M, D]."""
        states_BMD = self.layers[layer]
        if self.visible is not None:
            states_BMD = states_BMD[:, max(0, states_BMD.shape[1] - self.visible) :]
        if not self.compressed:
            return states_BMD
        return torch.cat([self.compressed[layer], states_BMD], dim=1)

    def reset(self, rows_B: Tensor) -> "Memory":
        """The same states, hidden from those streams."""
        rows_B = rows_B.to(self.layers[0].device, non_blocking=True)
        length = self.layers[0].shape[1]
        assert not self.compressed, "TrainConfig resets no compressed states"
        return replace(self, valid_len_B=reset_valid_len(self.valid_len_B, rows_B, length))

    def advanced(self, kept: "Sequence[Kept]", queries: int) -> "Memory":
        """The memory after a segment of `queries` tokens, of which each layer kept that."""
        layers = tuple(each.layer_BMD for each in kept)
        valid_len_B = advance_valid_len(self.valid_len_B, queries, self.span, layers[0].shape[1])
        compressed = tuple(each.compressed_BCD for each in kept if each.compressed_BCD is not None)
        losses = [each.loss for each in kept if each.loss is not None]
        loss = torch.stack(losses).sum() if losses else None
        return Memory(layers, self.span, valid_len_B, compressed, None, loss)


class Kept(NamedTuple):
    """What one layer keeps after a segment; see `Memory`."""

    layer_BMD: Tensor
    compressed_BCD: Tensor | None = None
    loss: Tensor | None = None


def reset_valid_len(valid_len_B: Tensor | None, rows_B: Tensor, length: int) -> Tensor:
    """How many of `length` states each stream may see once those of `rows_B` start afresh."""
    if valid_len_B is None:
        valid_len_B = torch.full_like(rows_B, length, dtype=torch.long)
    return valid_len_B.masked_fill(rows_B, 0)


def advance_valid_len(
    valid_len_B: Tensor | None, queries: int, span: AttentionSpan, length: int
) -> Tensor | None:
    """How many of the `length` states in memory after a segment each stream may see.

    Args:
        valid_len_B: the same before the segment of `queries` tokens; None for all.
    """
    if valid_len_B is None:
        return None
    added = queries if span.stride is None else min(queries, span.stride)
    return (valid_len_B + added).clamp(max=length)


def with_memory(memory_BMD: Tensor, input_BTD: Tensor) -> Tensor:
    """What keys and values are computed from: memory, then the segment: [B, S, D]."""
    if memory_BMD.shape[1] == 0:
        return input_BTD
    return torch.cat([memory_BMD.to(input_BTD.dtype), input_BTD], dim=1)


def carried(context_BSD: Tensor, queries: int, span: AttentionSpan) -> Tensor:
    """The newest mem_len states up to the next segment's start, without gradient.

    With sinks the oldest of them, once states are lost, are the first that the stream ever had.

    A copy where they are a part of the context, which could not be freed otherwise, and would be
    written to checkpoints with them.
    """
    keys = context_BSD.shape[1]
    end = keys if span.stride is None else min(keys, keys - queries + span.stride)
    if span.sinks and end > span.mem_len:
        newest = context_BSD[:, end - (span.mem_len - span.sinks) : end]
        return torch.cat([context_BSD[:, : span.sinks], newest], dim=1).detach()
    kept_BMD = context_BSD[:, max(0, end - span.mem_len) : end].detach()
    return kept_BMD if kept_BMD.shape[1] == keys else kept_BMD.clone(memory_format=CONTIGUOUS)
