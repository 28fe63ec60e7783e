"""How an encoding scores, as products that attention can compute piece by piece."""

from typing import NamedTuple

from torch import Tensor

from txlbench.models.positions.tables import Distances


class Terms(NamedTuple):
    """(query + content_bias) . key + (query + position_bias) . rows + bias, over sqrt(d_head).

    Attributes:
        content_bias_HK, position_bias_HK: added to every query; None for nothing.
        table: rows and bias of each distance; None where scores know no distance.
    """

    content_bias_HK: Tensor | None = None
    position_bias_HK: Tensor | None = None
    table: Distances | None = None

    def content_query(self, query_HBTK: Tensor) -> Tensor:
        return _plus(query_HBTK, self.content_bias_HK)

    def position_query(self, query_HBTK: Tensor) -> Tensor:
        return _plus(query_HBTK, self.position_bias_HK)

    def position_HBTS(self, query_HBTK: Tensor) -> Tensor | None:
        return None if self.table is None else self.table.position(self.position_query(query_HBTK))


def _plus(query_HBTK: Tensor, bias_HK: Tensor | None) -> Tensor:
    if bias_HK is None:
        return query_HBTK
    return query_HBTK + bias_HK[:, None, None].to(query_HBTK.dtype)
