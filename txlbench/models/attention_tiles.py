"""What fused attention multiplies for some streams, tile by tile, and the gradients it sums up."""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from txlbench.models.alignment import blocked_columns, mask_TS, relative_shift
from txlbench.models.mask import Mask
from txlbench.models.tiles import Tile


@dataclass(frozen=True)
class Shared:
    """What all streams have in common, times 1/sqrt(d_head) but for the rows.

    Attributes:
        u_HK, v_HK: added to queries for content and for position; None for nothing.
        rows_HSK: after an unused first row those of the distances S-1, ..., 0; None for none.
        bias_HS: likewise; None for none.
    """

    u_HK: Tensor | None
    v_HK: Tensor | None
    rows_HSK: Tensor | None
    bias_HS: Tensor | None

    def gradients(self) -> "Shared":
        """Zeros of the same shapes, in float32 at least, to sum in."""
        return Shared(*(_zeros(part) for part in vars(self).values()))


class Streams:
    """Queries, keys and values of some streams, heads first: [H * b, T or S, K], contiguous."""

    def __init__(self, streams: slice, query_BTHK: Tensor, keys: Tensor, values: Tensor) -> None:
        self.streams = streams
        self.count = streams.stop - streams.start
        self.query_BTHK = query_BTHK[streams]
        self.keys, self.values = keys, values

    def queries(self, tile: Tile, bias_HK: Tensor | None) -> Tensor:
        """[H * b, t, K], with the bias of each head."""
        query_HBTK = self.query_BTHK[:, tile.queries].permute(2, 0, 1, 3)
        if bias_HK is None:
            return query_HBTK.contiguous().flatten(0, 1)
        out = query_HBTK.new_empty(query_HBTK.shape)
        return torch.add(query_HBTK, bias_HK[:, None, None], out=out).flatten(0, 1)

    def scores(self, tile: Tile, shared: Shared, mask: Mask) -> Tensor:
        """[H * b, t, s], -inf where a query must not see a key; positions share its buffer."""
        content, keys = self.queries(tile, shared.u_HK), self.keys[:, tile.keys]
        if shared.rows_HSK is None:
            scores = torch.bmm(content, keys.mT)
        else:
            scores = self._positions(tile, shared, shared.rows_HSK).baddbmm_(content, keys.mT)
        for columns, hidden in _hidden(*tile.shape, mask.attention_length, scores.dtype):
            scores[..., columns] += hidden
        if mask.known_B is not None:
            self._hide_forgotten(scores, tile, mask, mask.known_B)
        return scores

    def _positions(self, tile: Tile, shared: Shared, rows_HSK: Tensor) -> Tensor:
        """Scores of distances, by key, as a view."""
        queries, keys = tile.shape
        position_HNK = self.queries(tile, shared.v_HK).view(len(rows_HSK), -1, rows_HSK.shape[2])
        by_distance = torch.bmm(position_HNK, rows_HSK[:, -keys - 1 :].mT)
        if shared.bias_HS is not None:
            by_distance += shared.bias_HS[:, None, -keys - 1 :]
        return relative_shift(by_distance.view(-1, queries, keys + 1))

    def _hide_forgotten(self, scores: Tensor, tile: Tile, mask: Mask, known_B: Tensor) -> None:
        oldest_B = mask.keys - mask.queries - known_B[self.streams] - tile.keys.start
        forgotten_BS = torch.arange(tile.shape[1], device=scores.device) < oldest_B[:, None]
        hidden_BS = scores.new_zeros(forgotten_BS.shape).masked_fill_(forgotten_BS, float("-inf"))
        scores.unflatten(0, (-1, self.count)).add_(hidden_BS[:, None])


class Gradients:
    """Of one group of streams, summed over tiles; what is shared goes to `total`."""

    def __init__(self, streams: Streams, shared: Shared, total: Shared) -> None:
        self.streams, self.shared, self.total = streams, shared, total
        self.keys = torch.zeros_like(streams.keys)
        self.values = torch.zeros_like(streams.values)

    def add_scores(self, grad: Tensor, tile: Tile) -> Tensor:
        """The queries' gradient [H * b, t, K] from that of the scores [H * b, t, s].

        `grad` is zero where a query does not see a key.
        """
        content = self.streams.queries(tile, self.shared.u_HK)
        self.keys[:, tile.keys] += torch.bmm(grad.mT, content)
        of_query = torch.bmm(grad, self.streams.keys[:, tile.keys])
        _add_sum(self.total.u_HK, of_query)
        if self.shared.rows_HSK is not None:
            of_query += self._add_distances(by_distance(grad), tile, self.shared.rows_HSK)
        return of_query

    def _add_distances(self, grad: Tensor, tile: Tile, rows_HSK: Tensor) -> Tensor:
        """The positions' part of it, from the gradient by distance [H * b, t, s + 1]."""
        (heads, _, size), reach = rows_HSK.shape, tile.shape[1] + 1
        position_HNK = self.streams.queries(tile, self.shared.v_HK).view(heads, -1, size)
        grad_HNS = grad.view(heads, -1, reach)
        assert self.total.rows_HSK is not None
        self.total.rows_HSK[:, -reach:] += torch.bmm(grad_HNS.mT, position_HNK)
        if self.total.bias_HS is not None:
            self.total.bias_HS[:, -reach:] += grad_HNS.sum(1, dtype=self.total.bias_HS.dtype)
        of_position = torch.bmm(grad_HNS, rows_HSK[:, -reach:]).view(*grad.shape[:2], size)
        _add_sum(self.total.v_HK, of_position)
        return of_position


def heads_first(states_BTHK: Tensor) -> Tensor:
    """[B, T, H, K] -> [H * B, T, K], contiguous."""
    return states_BTHK.permute(2, 0, 1, 3).contiguous().flatten(0, 1)


def streams_first(states: Tensor, streams: int) -> Tensor:
    """[H * b, T, K] -> [b, T, H, K], as a view."""
    return states.unflatten(0, (-1, streams)).permute(1, 2, 0, 3)


def by_distance(grad: Tensor) -> Tensor:
    """The gradient before the relative shift: [H * b, t, s] -> [H * b, t, s + 1]."""
    products, queries, keys = grad.shape
    shifted = grad.new_empty(products, queries, keys + 1)
    shifted.flatten(1)[:, :queries] = 0
    relative_shift(shifted).copy_(grad)
    return shifted


@lru_cache(maxsize=64)
def _hidden(
    queries: int, keys: int, attention_length: int | None, dtype: torch.dtype
) -> list[tuple[slice, Tensor]]:
    """The columns in which a query must not see a key, and what is added to scores there."""
    mask = mask_TS(queries, keys, attention_length, torch.empty(0, dtype=dtype))
    columns = blocked_columns(queries, keys, attention_length)
    return [(part, mask[:, part].contiguous()) for part in columns]


def _zeros(part: Tensor | None) -> Tensor | None:
    if part is None:
        return None
    return torch.zeros_like(part, dtype=torch.promote_types(part.dtype, torch.float32))


def _add_sum(total_HK: Tensor | None, grad: Tensor) -> None:
    """Adds the sum over streams and queries of `grad`, [H * b, t, K]."""
    if total_HK is not None:
        total_HK += grad.unflatten(0, (len(total_HK), -1)).sum((1, 2), dtype=total_HK.dtype)
