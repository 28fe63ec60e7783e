"""Encodings that break what every model must keep."""

import torch
from torch import Tensor

from txlbench.models.positions.encoding import Encoding


class PeekingEncoding(Encoding):
    """Adds to each token a little of the one after it."""

    def add_to_input(self, hidden_BTD: Tensor) -> Tensor:
        return hidden_BTD + 1e-3 * hidden_BTD.roll(-1, dims=1)


class MixingEncoding(Encoding):
    """Adds to each stream the mean of all streams."""

    def add_to_layer(self, layer: int, hidden_BTD: Tensor) -> Tensor:
        return hidden_BTD + hidden_BTD.mean(dim=0, keepdim=True)


class CountingEncoding(Encoding):
    """Claims to see distances only, and counts from the start of each segment."""

    def add_to_input(self, hidden_BTD: Tensor) -> Tensor:
        places_T = torch.arange(hidden_BTD.shape[1], dtype=hidden_BTD.dtype)
        return hidden_BTD + places_T[:, None] / 10


class StretchingEncoding(Encoding):
    """Claims to see distances only, and depends on how many tokens are read at once."""

    def add_to_input(self, hidden_BTD: Tensor) -> Tensor:
        return hidden_BTD * (1 + hidden_BTD.shape[1] / 100)
