"""What fused attention multiplies, tile by tile, and the gradients that it collects."""

from dataclasses import dataclass

import torch
from torch import Tensor

from txlbench.models.alignment import relative_shift
from txlbench.models.tiles import Tile


@dataclass(frozen=True)
class Operands:
    """What attention is computed from, queries and their biases times s already.

    Attributes:
        context_BS2HK: keys and values.
        u_HK, v_HK: added to queries for content and position; None for nothing.
        rows_HSK: after an unused first row those of the distances S-1, ..., 0; None for none.
        bias_HS: likewise; None for none.
    """

    query_BTHK: Tensor
    context_BS2HK: Tensor
    u_HK: Tensor | None
    v_HK: Tensor | None
    rows_HSK: Tensor | None
    bias_HS: Tensor | None

    def queries(self, tile: Tile, bias_HK: Tensor | None) -> Tensor:
        """[H * b, t, K], contiguous."""
        query = self.query_BTHK[tile.streams, tile.queries]
        return heads_first(query if bias_HK is None else query + bias_HK)

    def keys(self, tile: Tile) -> Tensor:
        """[H * b, s, K], contiguous."""
        return heads_first(self.context_BS2HK[tile.streams, tile.keys, 0])

    def values(self, tile: Tile) -> Tensor:
        """[H * b, s, K], contiguous."""
        return heads_first(self.context_BS2HK[tile.streams, tile.keys, 1])

    def scores(self, tile: Tile) -> Tensor:
        """[H * b, t, s], before masking."""
        content, keys = self.queries(tile, self.u_HK), self.keys(tile)
        if self.rows_HSK is None:
            return torch.bmm(content, keys.mT)
        (_, queries, reach), heads = tile.shape, len(self.rows_HSK)
        position = self.queries(tile, self.v_HK).view(heads, -1, content.shape[-1])
        scores = torch.bmm(position, self.rows_HSK[:, -reach - 1 :].mT)
        if self.bias_HS is not None:
            scores += self.bias_HS[:, None, -reach - 1 :]
        return relative_shift(scores.view(-1, queries, reach + 1)).baddbmm_(content, keys.mT)


def heads_first(states_BTHK: Tensor) -> Tensor:
    """[B, T, H, K] -> [H * B, T, K], contiguous."""
    return states_BTHK.permute(2, 0, 1, 3).contiguous().flatten(0, 1)


def streams_first(states: Tensor, tile: Tile) -> Tensor:
    """[H * b, T, K] -> [b, T, H, K], as a view."""
    return states.unflatten(0, (-1, tile.shape[0])).permute(1, 2, 0, 3)


@dataclass
class Gradients:
    """Of the operands, summed over tiles; those of biases and rows in float32 at least."""

    query_BTHK: Tensor
    context_BS2HK: Tensor
    u_HK: Tensor | None
    v_HK: Tensor | None
    rows_HSK: Tensor | None
    bias_HS: Tensor | None

    @classmethod
    def zeros(cls, operands: Operands) -> "Gradients":
        """Nothing yet; queries are written by one tile each."""
        return cls(
            torch.empty_like(operands.query_BTHK),
            torch.zeros_like(operands.context_BS2HK),
            *(_zeros(operands.u_HK), _zeros(operands.v_HK)),
            *(_zeros(operands.rows_HSK), _zeros(operands.bias_HS)),
        )

    def add_values(self, grad: Tensor, tile: Tile) -> None:
        """`grad` is [H * b, s, K]."""
        self.context_BS2HK[tile.streams, tile.keys, 1] += streams_first(grad, tile)

    def add_scores(self, grad: Tensor, tile: Tile, operands: Operands) -> None:
        """`grad`, [H * b, t, s], is zero where a query does not see a key."""
        content = operands.queries(tile, operands.u_HK)
        of_keys = torch.bmm(grad.mT, content)
        self.context_BS2HK[tile.streams, tile.keys, 0] += streams_first(of_keys, tile)
        of_query = torch.bmm(grad, operands.keys(tile))
        _add_to(self.u_HK, of_query)
        if operands.rows_HSK is not None:
            of_query += self._add_distances(by_distance(grad), tile, operands)
        self.query_BTHK[tile.streams, tile.queries] = streams_first(of_query, tile)

    def _add_distances(self, grad: Tensor, tile: Tile, operands: Operands) -> Tensor:
        """From `grad`, [H * b, t, s + 1], that of the queries by their positions."""
        assert operands.rows_HSK is not None
        assert self.rows_HSK is not None
        heads, reach = len(operands.rows_HSK), tile.shape[2] + 1
        grad_HNS = grad.view(heads, -1, reach)
        position_HNK = operands.queries(tile, operands.v_HK).view(heads, grad_HNS.shape[1], -1)
        self.rows_HSK[:, -reach:] += torch.bmm(grad_HNS.mT, position_HNK)
        if self.bias_HS is not None:
            self.bias_HS[:, -reach:] += grad_HNS.sum(1, dtype=self.bias_HS.dtype)
        of_position = torch.bmm(grad_HNS, operands.rows_HSK[:, -reach:]).view(*grad.shape[:2], -1)
        _add_to(self.v_HK, of_position)
        return of_position


def by_distance(grad: Tensor) -> Tensor:
    """The gradient before the relative shift: [H * b, t, s] -> [H * b, t, s + 1]."""
    products, queries, keys = grad.shape
    shifted = grad.new_empty(products, queries, keys + 1)
    shifted.flatten(1)[:, :queries] = 0
    relative_shift(shifted).copy_(grad)
    return shifted


def _zeros(operand: Tensor | None) -> Tensor | None:
    if operand is None:
        return None
    return torch.zeros_like(operand, dtype=torch.promote_types(operand.dtype, torch.float32))


def _add_to(total_HK: Tensor | None, grad: Tensor) -> None:
    """Adds the sum over streams and queries of `grad`, [H * b, t, K]."""
    if total_HK is not None:
        total_HK += grad.unflatten(0, (len(total_HK), -1)).sum((1, 2), dtype=total_HK.dtype)
