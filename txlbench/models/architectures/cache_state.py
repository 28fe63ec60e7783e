"""What an architecture of transformers remembers: its cache as plain tensors, without gradient."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from txlbench.config.base import AttentionSpan
from txlbench.models.memory import advance_valid_len, reset_valid_len

KEYS, VALUES = "keys", "values"


@dataclass(frozen=True)
class CacheState:
    """Keys and values of softmax attention, and recurrent states, of each layer.

    Keys are kept as the model caches them, rotated for their positions in the stream; so positions
    count on from segment to segment, and only distances matter.

    Attributes:
        layers: for each layer that remembers something, its tensors by name, batch first: `keys`
            and `values` [B, H, M, K], `conv0` and `recurrent0` for states.
        span: how far queries look back; without memory nothing is remembered.
        seen: tokens of the stream before the next one, which is its position.
        valid_len_B: how many of the M newest keys each stream may still see; None for all.
    """

    span: AttentionSpan
    batch_size: int
    layers: Mapping[int, Mapping[str, Tensor]] = field(default_factory=lambda: MappingProxyType({}))
    seen: int = 0
    valid_len_B: Tensor | None = None

    @property
    def length(self) -> int:
        """M, the keys in memory."""
        lengths = (layer[KEYS].shape[2] for layer in self.layers.values() if KEYS in layer)
        return next(lengths, 0)

    def tensors(self) -> Mapping[str, Tensor]:
        """The remembered tensors; `seen` as one number a stream."""
        if not self.layers:
            return {}
        named = {
            f"layer{index}.{name}": tensor
            for index, layer in self.layers.items()
            for name, tensor in layer.items()
        }
        device = next(iter(named.values())).device
        named["seen"] = torch.full((self.batch_size,), self.seen, device=device)
        return named if self.valid_len_B is None else {**named, "known": self.valid_len_B}

    def replace(self, tensors: Mapping[str, Tensor]) -> "CacheState":
        layers: dict[int, dict[str, Tensor]] = {}
        for full_name, tensor in tensors.items():
            layer, _, name = full_name.partition(".")
            if name:
                layers.setdefault(int(layer.removeprefix("layer")), {})[name] = tensor
        seen = int(tensors["seen"][0]) if "seen" in tensors else 0
        return CacheState(self.span, self.batch_size, layers, seen, tensors.get("known"))

    def reset(self, rows_B: Tensor) -> "CacheState":
        """The same keys hidden from those streams, and their recurrent states zero."""
        if not self.layers:
            return self
        layers = {index: _without(layer, rows_B) for index, layer in self.layers.items()}
        valid_len_B = self.valid_len_B
        if self.length:
            device = next(iter(self.tensors().values())).device
            valid_len_B = reset_valid_len(valid_len_B, rows_B.to(device), self.length)
        return CacheState(self.span, self.batch_size, layers, self.seen, valid_len_B)

    def advanced(self, cache: Any, queries: int) -> "CacheState":
        """The state after a segment of `queries` tokens that `cache` has read too."""
        stride = queries if self.span.stride is None else min(queries, self.span.stride)
        layers = {}
        for index, layer in enumerate(cache.layers):
            tensors = _tensors(layer)
            if tensors:
                layers[index] = {
                    name: _kept(tensor, self.span.mem_len, queries - stride)
                    if name in (KEYS, VALUES)
                    else tensor.detach().clone()
                    for name, tensor in tensors.items()
                }
        after = replace(self, layers=layers, seen=self.seen + stride)
        valid_len_B = advance_valid_len(self.valid_len_B, queries, self.span, after.length)
        return replace(after, valid_len_B=valid_len_B)

    def moved(self, tokens: int) -> "CacheState":
        """The same state, that many positions farther on in the stream."""
        return replace(self, seen=self.seen + tokens)

    def cache(self, config: Any) -> Any:
        """A cache of transformers with what is remembered, for one forward pass.

        Sliding windows are left to masks: all layers keep the same number of keys.
        """
        from transformers import DynamicCache
        from transformers.cache_utils import DynamicLayer

        cache = DynamicCache(config=config)
        cache.layers = [DynamicLayer() if _is_attention(layer) else layer for layer in cache.layers]
        for index, layer in enumerate(cache.layers):
            _fill(layer, self.layers.get(index, {}))
        return cache


def _is_attention(layer: Any) -> bool:
    """Whether a layer's cache holds keys and values and nothing else."""
    return hasattr(layer, KEYS) and not hasattr(layer, "conv_states")


def _tensors(layer: Any) -> dict[str, Tensor]:
    """The tensors in one layer of a cache."""
    found = {}
    if getattr(layer, KEYS, None) is not None and layer.keys.numel():
        found = {KEYS: layer.keys, VALUES: layer.values}
    for name in ("conv", "recurrent"):
        states = getattr(layer, f"{name}_states", {})
        found |= {f"{name}{i}": state for i, state in states.items() if state is not None}
    return found


def _fill(layer: Any, tensors: Mapping[str, Tensor]) -> None:
    """Puts remembered tensors into an empty layer of a cache, which may then write into copies."""
    if KEYS in tensors:
        layer.update(tensors[KEYS], tensors[VALUES])
    for name, tensor in tensors.items():
        if name.startswith("conv"):
            index, size = int(name.removeprefix("conv")), tensor.shape[-1]
            layer.update_conv_state(tensor, state_idx=index, conv_kernel_size=size)
        elif name.startswith("recurrent"):
            layer.update_recurrent_state(tensor, state_idx=int(name.removeprefix("recurrent")))
    if hasattr(layer, "update_recurrent_state"):
        layer.update_recurrent_state = partial(_assign, layer)


def _assign(layer: Any, recurrent_states: Tensor, state_idx: int = 0, **_: Any) -> Tensor:
    """Remembers a state instead of writing it into the old one, which its gradient needs."""
    layer.recurrent_states[state_idx] = recurrent_states
    layer.is_recurrent_states_initialized[state_idx] = True
    return recurrent_states


def _kept(tensor_BHSK: Tensor, mem_len: int, beyond: int) -> Tensor:
    """The newest `mem_len` keys or values, without the last `beyond`; a copy without gradient."""
    end = tensor_BHSK.shape[2] - beyond
    return tensor_BHSK[:, :, max(0, end - mem_len) : end].detach().clone()


def _without(layer: Mapping[str, Tensor], rows_B: Tensor) -> dict[str, Tensor]:
    """A layer's tensors with the recurrent states of some streams zero."""
    return {
        name: tensor
        if name in (KEYS, VALUES)
        else tensor.masked_fill(rows_B.to(tensor.device).view(-1, *[1] * (tensor.dim() - 1)), 0)
        for name, tensor in layer.items()
    }
