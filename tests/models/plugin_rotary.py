"""Rotary positions and a learned bias of distances as a plug-in: keys are changed, and counted."""

import torch
from torch import Tensor, nn

from txlbench.config.base import AttentionSpan
from txlbench.config.catalogue import EncodingEntry
from txlbench.models.mask import distances_S, pad_distances
from txlbench.models.positions.encoding import Encoding
from txlbench.models.positions.tables import DistanceTable, frequencies

ENTRIES = 9


def rotated(states_HBLK: Tensor, first: int) -> Tensor:
    """Pairs of numbers turned by the angles of positions first, first + 1, ..."""
    length, size = states_HBLK.shape[-2:]
    places = torch.arange(first, first + length, device=states_HBLK.device).double()
    angles = places[:, None] * frequencies(size // 2 * 2, states_HBLK.device)
    pairs = states_HBLK[..., : size // 2 * 2].unflatten(-1, (-1, 2))
    x, y = pairs.double().unbind(-1)
    cos, sin = angles.cos(), angles.sin()
    turned = torch.stack([x * cos - y * sin, x * sin + y * cos], dim=-1).flatten(-2)
    return torch.cat([turned.to(states_HBLK.dtype), states_HBLK[..., size // 2 * 2 :]], dim=-1)


class RotaryEncoding(Encoding):
    """R_i q_i . R_j k_j (Su et al. 2021), and a learned bias of each layer, head and distance."""

    def __init__(self, config) -> None:
        super().__init__(config)
        self.by_distance = nn.Parameter(torch.empty(config.n_layer, config.n_head, ENTRIES))

    def place(self, layer: int, states_HBLK: Tensor, first: int, span: AttentionSpan) -> Tensor:
        return rotated(states_HBLK, first)

    def prepare(self, keys: int, clamp_len: int | None, like: Tensor) -> Tensor:
        return distances_S(keys, clamp_len, like.device).clamp(max=ENTRIES - 1)

    def distance_table(self, layer: int, shared: Tensor) -> DistanceTable:
        return DistanceTable(bias_HS=pad_distances(self.by_distance[layer, :, shared].T).T)


ROTARY = EncodingEntry(
    "tests.models.plugin_rotary:RotaryEncoding",
    parameters=lambda config: config.n_layer * config.n_head * ENTRIES,
    position_products=lambda config, keys: 2.0 * config.n_head * config.head_size,
    clamps=False,
)
