"""What relative encodings multiply queries with, by layer and distance, kept between passes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from txlbench.models.alignment import relative_shift


@dataclass(frozen=True)
class Table:
    """How one layer scores distances: query . rows + bias.

    Attributes:
        rows_HKS: after an unused first column the distances S-1, ..., 0.
        bias_HS: the same for every query; None for none.
    """

    rows_HKS: Tensor
    bias_HS: Tensor | None = None

    def position(self, query_HBTK: Tensor) -> Tensor:
        """Scores [H, B, T, S] of queries by their distance to each key."""
        _, batch, queries, _ = query_HBTK.shape
        by_distance = torch.bmm(query_HBTK.flatten(1, 2), self.rows_HKS.to(query_HBTK.dtype))
        if self.bias_HS is not None:
            by_distance = by_distance + self.bias_HS[:, None, :].to(by_distance.dtype)
        return relative_shift(by_distance.unflatten(1, (batch, queries)))

    def scaled(self, dtype: torch.dtype) -> "Table":
        """The table of scores over sqrt(d_head), laid out to be multiplied with often."""
        scale = self.rows_HKS.shape[1] ** -0.5
        bias_HS = None if self.bias_HS is None else (self.bias_HS * scale).to(dtype)
        return Table((self.rows_HKS * scale).to(dtype).contiguous(), bias_HS)

    def newest(self, keys: int) -> "Table":
        """The table of the `keys` shortest distances, as a view.

        Its unused column is that of a longer distance.
        """
        bias_HS = None if self.bias_HS is None else self.bias_HS[:, -keys - 1 :]
        return Table(self.rows_HKS[..., -keys - 1 :], bias_HS)


class ScaledTables(tuple[Table, ...]):
    """The tables of all layers, their scores over sqrt(d_head)."""


def recall_tables(
    kept: dict[Any, Any], keys: int, dtype: torch.dtype, make: Callable[[int], Iterable[Table]]
) -> ScaledTables:
    """The tables of that many keys, out of kept ones where those reach as far.

    Args:
        dtype: in which queries are multiplied.
        make: gives each layer's table of a number of keys.
    """
    reach, tables = kept.get(dtype, (0, ()))
    if reach < keys:
        # Twice as far, since memory that grows asks for a little more each time.
        reach = 2 * keys if reach else keys
        tables = tuple(table.scaled(dtype) for table in make(reach))
        kept[dtype] = reach, tables
    return ScaledTables(table.newest(keys) for table in tables)
