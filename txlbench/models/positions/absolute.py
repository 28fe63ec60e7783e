"""Absolute encodings: a sinusoid on the input (Vaswani et al.), learned positions at every layer
(Al-Rfou et al.)."""

import torch
from torch import Tensor, nn

from txlbench.config.model import ModelConfig
from txlbench.errors import UserError
from txlbench.models.positions.encoding import Encoding
from txlbench.models.positions.tables import cached_sinusoid


class AbsoluteEncoding(Encoding):
    """Positions 0, ..., T-1 at every segment (Vaswani et al. 2017, section 3.5).

    With recurrence memory keeps the positions of its own segment, which makes the segments
    indistinguishable: the incoherent case before section 3.3 of the Transformer-XL paper,
    computed exactly so.
    """

    def add_to_input(self, hidden_BTD: Tensor) -> Tensor:
        _, queries, width = hidden_BTD.shape
        rows = cached_sinusoid(
            0, queries - 1, None, width, hidden_BTD.dtype, str(hidden_BTD.device)
        )
        return hidden_BTD + rows


class AlRfouEncoding(Encoding):
    """A table of each layer with one row a position (Al-Rfou et al. 2018, "Positional
    embeddings"). Positions restart at every segment; memory keeps the sums."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert config.max_distance is not None, "RunConfig resolves max_distance"
        self.table = nn.Parameter(
            torch.empty(config.n_layer, config.max_distance + 1, config.d_model)
        )

    def add_to_layer(self, layer: int, hidden_BTD: Tensor) -> Tensor:
        """Adds the layer's rows; UserError if the segment is longer than the table."""
        queries, known = hidden_BTD.shape[1], self.table.shape[1]
        if queries > known:
            raise UserError(
                f"al-rfou has learned {known} positions, but the segment has {queries} tokens",
                f"use a tgt_len or an attention length of at most {known}",
            )
        return hidden_BTD + self.table[layer, :queries]
