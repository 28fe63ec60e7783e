"""Transformer-XL's relative encoding (Dai et al. 2019, section 3.3)."""

import torch
from torch import Tensor, nn

from txlbench.config.model import ModelConfig
from txlbench.models.alignment import pad_distances, relative_shift
from txlbench.models.dropout import Dropout
from txlbench.models.positions.encoding import Encoding, Scores
from txlbench.models.positions.sinusoid import cached_sinusoid


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
        self.dropout = Dropout(config.dropout)

    def prepare(self, keys: int, clamp_len: int | None, like: Tensor) -> Tensor:
        """R of the distances S-1, ..., 0 after a row of zeros: [S + 1, D]."""
        rows_SD = cached_sinusoid(
            keys - 1, 0, clamp_len, self.config.d_model, like.dtype, str(like.device)
        )
        padded: Tensor = self.dropout(pad_distances(rows_SD))
        return padded

    def score(self, layer: int, query_HBTK: Tensor, shared: Tensor) -> Scores:
        heads, batch, queries, size = query_HBTK.shape
        owner = layer if self.config.untie_r else 0
        u_H11K, v_H11K = (
            bias[owner][:, None, None, :].to(query_HBTK.dtype) for bias in (self.u, self.v)
        )
        r_HKS = self.r_net[layer](shared).view(-1, heads, size).permute(1, 2, 0)
        by_distance = torch.bmm((query_HBTK + v_H11K).flatten(1, 2), r_HKS)
        position_HBTS = relative_shift(by_distance.unflatten(1, (batch, queries)))
        return Scores(query_HBTK + u_H11K, position_HBTS)
