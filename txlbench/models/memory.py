"""The transformer's memory: cached inputs of each layer (paper section 3.2)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from txlbench.config.base import AttentionSpan


@dataclass(frozen=True)
class Memory:
    """The newest min(mem_len, seen) inputs of each layer, oldest first, without gradient.

    Attributes:
        layers: one tensor [B, M, D] a layer; M grows from 0 to mem_len.
        span: how the model looks back.
        known_B: how many of the M states, the newest ones, each stream may still see; None for
            all of them, in every stream.
    """

    layers: tuple[Tensor, ...]
    span: AttentionSpan
    known_B: Tensor | None = None

    def tensors(self) -> Mapping[str, Tensor]:
        named = {f"layer{index}": layer for index, layer in enumerate(self.layers)}
        return named if self.known_B is None else {**named, "known": self.known_B}

    def replace(self, tensors: Mapping[str, Tensor]) -> "Memory":
        layers = tuple(tensors[f"layer{index}"] for index in range(len(self.layers)))
        return Memory(layers, self.span, tensors.get("known"))

    def forget(self, rows_B: Tensor) -> "Memory":
        """The same states, hidden from those streams."""
        batch, length, _ = self.layers[0].shape
        known_B = self.known_B
        if known_B is None:
            known_B = torch.full((batch,), length, device=self.layers[0].device)
        return Memory(self.layers, self.span, known_B.masked_fill(rows_B.to(known_B.device), 0))

    def advanced(self, layers: tuple[Tensor, ...], queries: int) -> "Memory":
        """The memory after a segment of `queries` tokens, which left `layers`."""
        known_B = known_after(self.known_B, queries, self.span, layers[0].shape[1])
        return Memory(layers, self.span, known_B)


def known_after(
    known_B: Tensor | None, queries: int, span: AttentionSpan, length: int
) -> Tensor | None:
    """How many of the `length` states that are remembered now each stream may see.

    Args:
        known_B: of those remembered before a segment of `queries` tokens; None for all.
    """
    if known_B is None:
        return None
    added = queries if span.stride is None else min(queries, span.stride)
    return (known_B + added).clamp(max=length)


def with_memory(memory_BMD: Tensor, input_BTD: Tensor) -> Tensor:
    """What keys and values are computed from: memory, then the segment: [B, S, D]."""
    if memory_BMD.shape[1] == 0:
        return input_BTD
    return torch.cat([memory_BMD.to(input_BTD.dtype), input_BTD], dim=1)


def carried(context_BSD: Tensor, queries: int, span: AttentionSpan) -> Tensor:
    """The newest mem_len states up to the next segment's start, as a view without gradient."""
    keys = context_BSD.shape[1]
    end = keys if span.stride is None else min(keys, keys - queries + span.stride)
    return context_BSD[:, max(0, end - span.mem_len) : end].detach()
