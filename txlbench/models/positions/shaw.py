"""Shaw et al.'s relative encoding, as the Transformer-XL paper compares with it."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from txlbench.config.model import ModelConfig
from txlbench.models.interface import computing_dtype
from txlbench.models.mask import distances_S, pad_distances
from txlbench.models.positions.encoding import Encoding, Terms
from txlbench.models.positions.tables import ScaledTables, Table, recall_tables


class ShawEncoding(Encoding):
    """Terms (a) and (b) with a learned table of each layer and head in place of W_kR R.

    Distances are clipped at `max_distance`: farther keys use the last entry. `shaw_bias` adds
    what the released code has beyond the paper's definition, a bias on each key's content and
    one on each distance, of every layer. Values carry no positions, as in that code.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert config.max_distance is not None, "RunConfig resolves max_distance"
        layers, heads, size = config.n_layer, config.n_head, config.head_size
        entries = config.max_distance + 1
        self.table = nn.Parameter(torch.empty(layers, entries, heads, size))
        if config.shaw_bias:
            self.content_bias = nn.Parameter(torch.empty(layers, heads, size))
            self.distance_bias = nn.Parameter(torch.empty(layers, entries, heads))

    def prepare(self, keys: int, clamp_len: int | None, like: Tensor) -> Tensor:
        """Which table entry each distance S-1, ..., 0 uses: [S]."""
        assert self.config.max_distance is not None
        return distances_S(keys, clamp_len, like.device).clamp(max=self.config.max_distance)

    def recall(
        self,
        kept: dict[Any, Any],
        keys: int,
        clamp_len: int | None,
        like: Tensor,
        queries: int,  # noqa: ARG002
    ) -> ScaledTables:
        """The tables of every layer, looked up once for many passes."""
        dtype = computing_dtype(like)

        def tables(reach: int) -> Iterator[Table]:
            entries = self.prepare(reach, clamp_len, like)
            layers = range(self.config.n_layer)
            return (self._table(layer, entries).scaled(dtype) for layer in layers)

        return recall_tables(kept, dtype, keys, tables)

    def terms(self, layer: int, shared: Tensor | ScaledTables) -> Terms:
        table = shared[layer] if isinstance(shared, ScaledTables) else self._table(layer, shared)
        content_bias_HK = self.content_bias[layer] if self.config.shaw_bias else None
        return Terms(content_bias_HK, None, table)

    def _table(self, layer: int, entries: Tensor) -> Table:
        """The rows, and the biases, of the entries that `prepare` gives."""
        rows_HKS = pad_distances(self.table[layer, entries]).permute(1, 2, 0)
        if not self.config.shaw_bias:
            return Table(rows_HKS)
        return Table(rows_HKS, pad_distances(self.distance_bias[layer, entries]).T)
