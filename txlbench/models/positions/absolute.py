"""Absolute encodings: a sinusoid on the input (Vaswani et al.), learned positions there or at every
layer (Al-Rfou et al.)."""

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


class LearnedEncoding(Encoding):
    """A learned row a position, added to the input (Gehring et al. 2017, GPT-2).

    Positions restart at every segment, as in `AbsoluteEncoding`.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert config.max_distance is not None, "RunConfig resolves max_distance"
        self.table = nn.Parameter(torch.empty(config.max_distance + 1, config.d_model))

    def add_to_input(self, hidden_BTD: Tensor) -> Tensor:
        """Adds the rows; UserError if the segment is longer than the table."""
        _check_learned("learned", hidden_BTD.shape[1], len(self.table))
        return hidden_BTD + self.table[: hidden_BTD.shape[1]]


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
        queries = hidden_BTD.shape[1]
        _check_learned("al-rfou", queries, self.table.shape[1])
        return hidden_BTD + self.table[layer, :queries]


def _check_learned(encoding: str, queries: int, known: int) -> None:
    if queries > known:
        raise UserError(
            f"{encoding} has learned {known} positions, but the segment has {queries} tokens",
            f"use a tgt_len or an attention length of at most {known}",
        )
