"""Shaw et al.'s relative encoding, as the Transformer-XL paper compares with it."""

import torch
from torch import Tensor, nn

from txlbench.config.model import ModelConfig
from txlbench.models.mask import distances_S, pad_distances
from txlbench.models.positions.encoding import Encoding
from txlbench.models.positions.tables import DistanceTable


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

    def biases(self, layer: int) -> tuple[Tensor | None, None]:
        """The content bias of `shaw_bias`."""
        return (self.content_bias[layer] if self.config.shaw_bias else None), None

    def distance_table(self, layer: int, shared: Tensor) -> DistanceTable:
        """The rows, and with `shaw_bias` the biases, of the entries that `prepare` gives."""
        rows_HKS = pad_distances(self.table[layer, shared]).permute(1, 2, 0)
        if not self.config.shaw_bias:
            return DistanceTable(rows_HKS)
        bias_HS = pad_distances(self.distance_bias[layer, shared]).T
        return DistanceTable(rows_HKS, bias_HS * self.config.head_size**-0.5)
