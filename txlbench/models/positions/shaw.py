"""Shaw et al.'s relative encoding, as the Transformer-XL paper compares with it."""

import torch
from torch import Tensor, nn

from txlbench.config.model import ModelConfig
from txlbench.models.alignment import distances_S, pad_distances, relative_shift
from txlbench.models.positions.encoding import Encoding, Scores


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

    def score(self, layer: int, query_HBTK: Tensor, shared: Tensor) -> Scores:
        _, batch, queries, _ = query_HBTK.shape
        r_HKS = pad_distances(self.table[layer, shared]).permute(1, 2, 0)
        by_distance = torch.bmm(query_HBTK.flatten(1, 2), r_HKS.to(query_HBTK.dtype))
        if self.config.shaw_bias:
            bias_HS = pad_distances(self.distance_bias[layer, shared]).T
            by_distance = by_distance + bias_HS[:, None, :].to(by_distance.dtype)
            content_H11K = self.content_bias[layer][:, None, None, :]
            query_HBTK = query_HBTK + content_H11K.to(query_HBTK.dtype)
        position_HBTS = relative_shift(by_distance.unflatten(1, (batch, queries)))
        return Scores(query_HBTK, position_HBTS)
