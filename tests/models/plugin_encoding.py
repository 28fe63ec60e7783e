"""An encoding as a user would plug it in: a bias that falls with distance, on content alone."""

from typing import Any

import torch
from torch import Tensor

from txlbench.models.positions.encoding import Encoding, Scores


class KeyDecayEncoding(Encoding):
    """Subtracts `(head + 1) / 10` times the distance after the 1/sqrt(d_head) scale."""

    def prepare(self, keys: int, clamp_len: int | None, like: Tensor) -> Any:
        return keys, clamp_len

    def score(self, layer: int, query_HBTK: Tensor, shared: Any) -> Scores:
        heads, _, queries, _ = query_HBTK.shape
        keys, clamp_len = shared
        query = torch.arange(keys - queries, keys, device=query_HBTK.device)
        distance = query[:, None] - torch.arange(keys, device=query_HBTK.device)
        distance = distance if clamp_len is None else distance.clamp(max=clamp_len)
        slopes = torch.arange(1, heads + 1, device=query_HBTK.device) / 10
        return Scores(query_HBTK, bias_HBTS=-slopes[:, None, None, None] * distance)
