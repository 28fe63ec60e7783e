"""Dropout of attention probabilities, one mask a pass, used a tile at a time."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import pad

from txlbench.models.dropout import kept
from txlbench.models.tiles import Tile


@dataclass(frozen=True)
class AttentionDropout:
    """Which probabilities are kept, as int8, and what those are multiplied with."""

    kept_HBTS: Tensor
    scale: float

    @classmethod
    def draw(cls, shape: tuple[int, ...], rate: float) -> "AttentionDropout":
        """For all at once, as the plain path draws it."""
        return cls(kept(shape, rate), 1 / (1 - rate))

    def of(self, values: Tensor, streams: slice, tile: Tile) -> Tensor:
        """`values`, [H * b, t, W], where they are kept; 0 where there are no keys."""
        kept_HBTS = self.kept_HBTS[:, streams, tile.queries, tile.keys].to(values.dtype)
        mask = pad(kept_HBTS.mul_(self.scale).flatten(0, 1), (0, values.shape[2] - tile.shape[1]))
        return values * mask
