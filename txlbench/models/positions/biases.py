"""Learned biases by distance: T5's buckets (Raffel et al. 2020), KERPLE (Chi et al. 2022)."""

import math

import torch
from torch import Tensor, nn

from txlbench.config.catalogue import T5_BUCKETS
from txlbench.config.model import ModelConfig
from txlbench.models.mask import distances_S, pad_distances
from txlbench.models.positions.encoding import Encoding
from txlbench.models.positions.tables import DistanceTable


class T5Encoding(Encoding):
    """q_i . k_j / sqrt(d_head) + b_h[bucket(i - j)], one table for all layers as in T5.

    Half of the 32 buckets are single distances, the others grow with their logarithm up to
    `max_distance` (T5's 128), and the last holds all beyond. T5 itself does not divide scores by
    sqrt(d_head); here every encoding does, before the bias.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert config.max_distance is not None, "RunConfig resolves max_distance"
        self.table = nn.Parameter(torch.empty(config.n_head, T5_BUCKETS))

    def prepare(self, keys: int, clamp_len: int | None, like: Tensor) -> DistanceTable:
        """The biases, the same in every layer."""
        assert self.config.max_distance is not None
        distances = distances_S(keys, clamp_len, like.device)
        rows_HS = self.table[:, buckets_of(distances, self.config.max_distance)]
        return DistanceTable(bias_HS=pad_distances(rows_HS.T).T)

    def distance_table(self, layer: int, shared: DistanceTable) -> DistanceTable:  # noqa: ARG002
        """What `prepare` gives."""
        return shared


def buckets_of(distances: Tensor, max_distance: int) -> Tensor:
    """The bucket of each distance."""
    exact = T5_BUCKETS // 2
    growth = (T5_BUCKETS - exact) / math.log(max(max_distance, exact + 1) / exact)
    beyond = (distances.clamp(min=exact).double() / exact).log() * growth
    far = (exact + beyond.long()).clamp(max=T5_BUCKETS - 1)
    return torch.where(distances < exact, distances, far)


class KerpleEncoding(Encoding):
    """q_i . k_j / sqrt(d_head) - p log(1 + a (i - j)), with p and a of each layer and head.

    The logarithmic variant, the best of the paper's. As in its code p starts uniform in [0, 2),
    a in [0, 1), and both count as LEAST where they are less, without losing their gradient.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.p = nn.Parameter(torch.empty(config.n_layer, config.n_head))
        self.a = nn.Parameter(torch.empty(config.n_layer, config.n_head))

    def initialise(self) -> None:
        """See the class."""
        nn.init.uniform_(self.p, 0, 2)
        nn.init.uniform_(self.a, 0, 1)

    def prepare(self, keys: int, clamp_len: int | None, like: Tensor) -> Tensor:
        """The distances S-1, ..., 0 after an unused one."""
        return pad_distances(distances_S(keys, clamp_len, like.device)).to(like.dtype)

    def distance_table(self, layer: int, shared: Tensor) -> DistanceTable:
        """The biases of `layer`."""
        p, a = (_at_least(part[layer], LEAST)[:, None] for part in (self.p, self.a))
        return DistanceTable(bias_HS=-p * torch.log1p(a * shared))


LEAST = 1e-2


def _at_least(values: Tensor, least: float) -> Tensor:
    return values + (values.clamp(min=least) - values).detach()
