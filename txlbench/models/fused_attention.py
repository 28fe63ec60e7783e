"""Relative attention tile by tile, with its gradient: no [H, B, T, S] tensor but the probabilities.

With s = 1/sqrt(d_head), queries q, keys k, values w, biases u and v, a row r and a bias c a
distance (`positions.encoding.Terms`)::

    scores  A_ij = s (q_i + u) . k_j + s ((q_i + v) . r_{i-j} + c_{i-j})
    P = softmax of A over the keys j that i may see;  output O_i = sum_j P_ij m_ij w_j

where m is attention dropout's mask. Given dO, the gradient of a sum over O::

    dw = (P m)^T dO         dP = m (dO w^T)         dA_ij = P_ij (dP_ij - sum_k P_ik dP_ik)
    dk = s dA^T (q + u)     dq = s (dA k + D r)     du = sum of s dA k    dv = sum of s D r
    dr = s D^T (q + v)      dc = s sum of D

D is dA by distance instead of by key: the same numbers, read with the rows of the relative shift
(`alignment.relative_shift`), since what the shift leaves out and what it should not have read
are zero in dA. Every product goes into a tile's buffer, so that masking, softmax and their
gradients run in the cache.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from txlbench.models.alignment import mask_TS
from txlbench.models.attention_tiles import Gradients, Operands, heads_first, streams_first
from txlbench.models.dropout import AttentionDropout
from txlbench.models.mask import Mask
from txlbench.models.positions.terms import Terms
from txlbench.models.tiles import Tile, tiles


def _hide(scores: Tensor, tile: Tile, mask: Mask) -> None:
    """Puts -inf where a query must not see a key."""
    streams, queries, keys = tile.shape
    part = Mask(queries, keys, mask.attention_length, None, scores)
    if part.columns:
        hidden = mask_TS(queries, keys, mask.attention_length, scores)
        for columns in part.columns:
            scores[..., columns] += hidden[:, columns]
    if mask.known_B is not None:
        oldest_B = mask.keys - mask.queries - mask.known_B[tile.streams] - tile.keys.start
        forgotten_BS = torch.arange(keys, device=scores.device) < oldest_B[:, None]
        hidden_BS = scores.new_zeros(streams, keys).masked_fill_(forgotten_BS, float("-inf"))
        scores.unflatten(0, (-1, streams)).add_(hidden_BS[:, None])


def _dropped(values: Tensor, tile: Tile, dropout: AttentionDropout | None) -> Tensor:
    """`values`, [H * b, t, s], times the mask of attention dropout."""
    if dropout is None:
        return values
    kept = dropout.kept_HBTS[:, tile.streams, tile.queries, tile.keys]
    return values * kept.to(values.dtype).mul_(dropout.scale).flatten(0, 1)


class FusedAttention(torch.autograd.Function):
    """See the module; called through `fused_attention`."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Tensor:
        *tensors, mask, dropout = given
        operands, kept = Operands(*tensors), []
        mixed_BTHK = torch.empty_like(operands.query_BTHK)
        for tile in _plan(operands, mask):
            scores = operands.scores(tile)
            _hide(scores, tile, mask)
            probabilities = torch.softmax(scores, -1, out=scores.new_empty(scores.shape))
            mixed = torch.bmm(_dropped(probabilities, tile, dropout), operands.values(tile))
            mixed_BTHK[tile.streams, tile.queries] = streams_first(mixed, tile)
            if any(ctx.needs_input_grad):
                kept.append(probabilities)
        ctx.mask, ctx.dropout = mask, dropout
        ctx.save_for_backward(*tensors, *kept)
        return mixed_BTHK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BTHK: Tensor) -> tuple[Tensor | None, ...]:
        operands, kept = Operands(*ctx.saved_tensors[:6]), ctx.saved_tensors[6:]
        gradients = Gradients.zeros(operands)
        for tile, probabilities in zip(_plan(operands, ctx.mask), kept, strict=True):
            grad = heads_first(grad_BTHK[tile.streams, tile.queries])
            used = _dropped(probabilities, tile, ctx.dropout)
            gradients.add_values(torch.bmm(used.mT, grad), tile)
            of_scores = torch.bmm(grad, operands.values(tile).mT)
            of_scores = _dropped(of_scores, tile, ctx.dropout)
            torch.ops.aten._softmax_backward_data.out(
                of_scores, probabilities, -1, probabilities.dtype, grad_input=of_scores
            )
            gradients.add_scores(of_scores, tile, operands)
        return (*vars(gradients).values(), None, None)


def _plan(operands: Operands, mask: Mask) -> Iterator[Tile]:
    batch, queries, heads, _ = operands.query_BTHK.shape
    return tiles(batch, heads, queries, operands.context_BS2HK.shape[1], mask.attention_length)


def fused_attention(
    query_BTHK: Tensor,
    context_BS2HK: Tensor,
    terms: Terms,
    mask: Mask,
    dropout: AttentionDropout | None,
) -> Tensor:
    """Mixed values [B, T, H, K]; all products in the queries' number format."""
    scale, dtype = query_BTHK.shape[-1] ** -0.5, query_BTHK.dtype

    def scaled(bias: Tensor | None) -> Tensor | None:
        return None if bias is None else (bias * scale).to(dtype)

    table = terms.table
    rows_HSK = None if table is None else table.rows_HKS.mT.to(dtype).contiguous()
    bias_HS = None if table is None else scaled(table.bias_HS)
    mixed: Tensor = FusedAttention.apply(
        query_BTHK * scale,
        context_BS2HK,
        scaled(terms.content_bias_HK),
        scaled(terms.position_bias_HK),
        rows_HSK,
        bias_HS,
        mask,
        dropout,
    )
    return mixed
