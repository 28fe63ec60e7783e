"""What relative encodings multiply queries with, by layer and distance, kept between passes."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from txlbench.models.alignment import relative_shift


class Distances(Protocol):
    """How one layer scores its queries by their distance to each key."""

    def position(self, query_HBTK: Tensor) -> Tensor:
        """Scores [H, B, T, S]."""

    def newest(self, keys: int) -> "Distances":
        """The same for the `keys` shortest distances."""


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
        return relative_shift(self.by_distance(query_HBTK))

    def by_distance(self, query_HBTK: Tensor) -> Tensor:
        """The same as they lie in the rows: [H, B, T, S + 1]."""
        _, batch, queries, _ = query_HBTK.shape
        scores = torch.bmm(query_HBTK.flatten(1, 2), self.rows_HKS.to(query_HBTK.dtype))
        if self.bias_HS is not None:
            scores = scores + self.bias_HS[:, None, :].to(scores.dtype)
        return scores.unflatten(1, (batch, queries))

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


class ScaledTables(tuple[Distances, ...]):
    """The tables of all layers, their scores over sqrt(d_head)."""


@dataclass(frozen=True)
class _Recalled:
    """Tables as far as they reach, and those of the number of keys that was last asked for."""

    reach: int
    tables: tuple[Distances, ...]
    keys: int
    newest: ScaledTables


def recall_tables(
    kept: dict[Any, Any], name: Hashable, keys: int, make: Callable[[int], Iterable[Distances]]
) -> ScaledTables:
    """The tables of that many keys, out of kept ones where those reach as far.

    Args:
        name: tells these from other tables that are kept.
        make: gives each layer's table of a number of keys, scaled.
    """
    recalled = kept.get(name)
    if recalled is not None and recalled.keys == keys:
        newest: ScaledTables = recalled.newest
        return newest
    if recalled is None or recalled.reach < keys:
        # Twice as far, since memory that grows asks for a little more each time.
        reach = keys if recalled is None else 2 * keys
        tables = tuple(make(reach))
    else:
        reach, tables = recalled.reach, recalled.tables
    newest = ScaledTables(table.newest(keys) for table in tables)
    kept[name] = _Recalled(reach, tables, keys, newest)
    return newest
