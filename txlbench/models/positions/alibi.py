"""ALiBi: a penalty on the score that grows linearly with distance (Press et al. 2022)."""

import math

import torch
from torch import Tensor

from txlbench.models.mask import distances_S, pad_distances
from txlbench.models.positions.encoding import Encoding
from txlbench.models.positions.tables import DistanceTable


class AlibiEncoding(Encoding):
    """q_i . k_j / sqrt(d_head) - slope_h (i - j), slopes 2 ** (-8 h / H) of heads h = 1, ..., H.

    For an H that is no power of two, the slopes of the next lower power P and then every other one
    of those of 2 P, as the paper's code has them. Nothing is learned.
    """

    def prepare(self, keys: int, clamp_len: int | None, like: Tensor) -> DistanceTable:
        """The biases, the same in every layer."""
        distances = pad_distances(distances_S(keys, clamp_len, like.device)).to(like.dtype)
        slopes = torch.tensor(slopes_of(self.config.n_head), device=like.device, dtype=like.dtype)
        return DistanceTable(bias_HS=-slopes[:, None] * distances)

    def distance_table(self, layer: int, shared: DistanceTable) -> DistanceTable:  # noqa: ARG002
        """What `prepare` gives."""
        return shared


def slopes_of(heads: int) -> list[float]:
    """The slope of each head, the steepest first within each power of two."""
    power = 2 ** int(math.log2(heads))
    doubled = [2 ** (-4 * odd / power) for odd in range(1, 2 * (heads - power), 2)]
    return [2 ** (-8 * head / power) for head in range(1, power + 1)] + doubled
