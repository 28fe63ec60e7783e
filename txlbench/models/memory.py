"""The transformer's memory: cached inputs of each layer (paper section 3.2)."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from txlbench.models.interface import View


@dataclass(frozen=True)
class Memory:
    """The newest min(mem_len, seen) inputs of each layer, oldest first, without gradient.

    Attributes:
        layers: one tensor [B, M, D] a layer; M grows from 0 to mem_len.
        view: how the model looks back.
    """

    layers: tuple[Tensor, ...]
    view: View

    def tensors(self) -> Mapping[str, Tensor]:
        return {f"layer{index}": layer for index, layer in enumerate(self.layers)}

    def replace(self, tensors: Mapping[str, Tensor]) -> "Memory":
        layers = tuple(tensors[f"layer{index}"] for index in range(len(self.layers)))
        return Memory(layers, self.view)


def with_memory(memory_BMD: Tensor, input_BTD: Tensor) -> Tensor:
    """What keys and values are computed from: memory, then the segment: [B, S, D]."""
    if memory_BMD.shape[1] == 0:
        return input_BTD
    return torch.cat([memory_BMD.to(input_BTD.dtype), input_BTD], dim=1)


def carried(context_BSD: Tensor, queries: int, view: View) -> Tensor:
    """The newest mem_len states up to the next segment's start, as a view without gradient."""
    keys = context_BSD.shape[1]
    end = keys if view.stride is None else min(keys, keys - queries + view.stride)
    return context_BSD[:, max(0, end - view.mem_len) : end].detach()
