"""ALiBi (Press et al. 2022) as a plug-in: a bias that falls with distance, one slope a head."""

import torch
from torch import Tensor

from txlbench.config.catalogue import EncodingEntry
from txlbench.models.mask import distances_S, pad_distances
from txlbench.models.positions.encoding import Encoding
from txlbench.models.positions.tables import DistanceTable


class AlibiEncoding(Encoding):
    """q_i . k_j / sqrt(d_head) - slope (i - j), slopes 2 ** (-8 h / H) of head h = 1, ..., H."""

    def prepare(self, keys: int, clamp_len: int | None, like: Tensor) -> DistanceTable:
        heads = torch.arange(1, self.config.n_head + 1, device=like.device, dtype=like.dtype)
        slopes_H = 2.0 ** (-8 * heads / self.config.n_head)
        distances = pad_distances(distances_S(keys, clamp_len, like.device)).to(like.dtype)
        return DistanceTable(bias_HS=-slopes_H[:, None] * distances)

    def distance_table(self, layer: int, shared: DistanceTable) -> DistanceTable:
        return shared


ALIBI = EncodingEntry("tests.models.plugin_alibi:AlibiEncoding", relative=True)
