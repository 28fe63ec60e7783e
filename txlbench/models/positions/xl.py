"""Transformer-XL's relative encoding (Dai et al. 2019, section 3.3)."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from txlbench.config.model import ModelConfig
from txlbench.models.dropout import Dropout
from txlbench.models.interface import autocast_dtype
from txlbench.models.mask import pad_distances
from txlbench.models.positions.encoding import Encoding
from txlbench.models.positions.tables import (
    Angles,
    AngleSums,
    DistanceScores,
    DistanceTable,
    cached_sinusoid,
    columns_in_pairs,
    tables_from_cache,
)

FAR = 1024
"""Keys from which a CPU sums angles faster for a single query than it reads R: equal at 800."""

EXACT = (torch.float32, torch.float64)
"""Number formats in which angles may be summed."""


class XLEncoding(Encoding):
    """Terms (a) to (d): content, content-position, content bias and position bias.

    For query i and key j, with the sinusoid R of their distance::

        q_i . k_j  +  q_i . W_kR R_{i-j}  +  u . k_j  +  v . W_kR R_{i-j}
           (a)             (b)                (c)             (d)

    computed as (q_i + u) . k_j + (q_i + v) . W_kR R_{i-j}. As in the official code u and v are
    per head and shared by all layers, unless `untie_r`; W_kR is each layer's own; R has
    dropout, one mask for all layers and streams.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        heads, size = config.n_head, config.head_size
        owners = config.n_layer if config.untie_r else 1
        self.r_net = nn.ModuleList(
            nn.Linear(config.d_model, heads * size, bias=False) for _ in range(config.n_layer)
        )
        self.u = nn.Parameter(torch.empty(owners, heads, size))
        self.v = nn.Parameter(torch.empty(owners, heads, size))
        self.dropout = Dropout(config.dropout, batch_dim=None)

    def prepare(self, keys: int, clamp_len: int | None, like: Tensor) -> Tensor:
        """R of the distances S-1, ..., 0 after a row of zeros: [S + 1, D]."""
        rows_SD = cached_sinusoid(
            keys - 1, 0, clamp_len, self.config.d_model, like.dtype, str(like.device)
        )
        padded: Tensor = self.dropout(pad_distances(rows_SD))
        return padded

    def biases(self, layer: int) -> tuple[Tensor, Tensor]:
        """u and v."""
        owner = layer if self.config.untie_r else 0
        return self.u[owner], self.v[owner]

    def distance_table(self, layer: int, shared: Tensor) -> DistanceTable:
        """W_kR R from the rows that `prepare` gives."""
        r_SHK = self.r_net[layer](shared).unflatten(-1, (self.config.n_head, -1))
        return DistanceTable(r_SHK.permute(1, 2, 0))

    def cached_tables(
        self, kept: dict[Any, Any], keys: int, clamp_len: int | None, like: Tensor, queries: int
    ) -> Sequence[DistanceScores | None]:
        """W_kR R of every layer; beside many keys sums of angles for a single query."""
        far = keys >= FAR and like.device.type == "cpu"
        exact = autocast_dtype(like) in EXACT
        if queries == 1 and far and clamp_len is None and exact:
            make = partial(self.angle_sums, like=like)
            return tables_from_cache(kept, AngleSums, keys, make)
        return super().cached_tables(kept, keys, clamp_len, like, queries)

    def angle_sums(self, reach: int, like: Tensor) -> Iterator[AngleSums]:
        """W_kR of every layer with the angles that all share, for scores over sqrt(d_head)."""
        heads, size = self.config.n_head, self.config.head_size
        angles = Angles.reaching(reach, self.config.d_model, like)
        nets: Any = self.r_net
        for net in nets:
            weight_HKD = net.weight.unflatten(0, (heads, size)) * size**-0.5
            yield AngleSums(columns_in_pairs(weight_HKD), angles, reach)
