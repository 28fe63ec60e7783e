"""Encodings as users would plug them in, each with its catalogue entry."""

from typing import Any

import torch
from torch import Tensor

from txlbench.config.catalogue import EncodingEntry
from txlbench.models.positions.encoding import Encoding


class KeyDecayEncoding(Encoding):
    """Scores given whole: content, less `(head + 1) / 10` times the distance after the scale."""

    has_terms = False

    def prepare(self, keys: int, clamp_len: int | None, like: Tensor) -> Any:
        return keys, clamp_len

    def scores(self, layer: int, query_HBTK: Tensor, key_HBSK: Tensor, shared: Any) -> Tensor:
        heads, _, queries, size = query_HBTK.shape
        keys, clamp_len = shared
        query = torch.arange(keys - queries, keys, device=query_HBTK.device)
        distance = query[:, None] - torch.arange(keys, device=query_HBTK.device)
        distance = distance if clamp_len is None else distance.clamp(max=clamp_len)
        slopes = torch.arange(1, heads + 1, device=query_HBTK.device) / 10
        content = query_HBTK @ key_HBSK.mT * size**-0.5
        return content - slopes[:, None, None, None] * distance


KEY_DECAY = EncodingEntry("tests.models.plugin_encoding:KeyDecayEncoding")
