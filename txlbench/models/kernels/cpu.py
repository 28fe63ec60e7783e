"""Attention on a CPU in training: relative scores tile by tile, with their gradient.

No [H, B, T, S] tensor exists but the probabilities, and with dropout their mask.

With s = 1/sqrt(d_head), queries q, keys k, values w, biases u and v, a row r and a bias c a
distance, and the decay f up to each key (`positions.encoding.ScoreTerms`)::

    scores  A_ij = s (q_i + u) . k_j + s (q_i + v) . r_{i-j} + c_{i-j} + f_i - f_j
    P = softmax of A over the keys j that i may see;  output O_i = sum_j P_ij m_ij w_j

where m is attention dropout's mask. Given dO, the gradient of a sum over O::

    dw = (P m)^T dO         dP = m (dO w^T)         dA_ij = P_ij (dP_ij - sum_k P_ik dP_ik)
    dk = s dA^T (q + u)     dq = s (dA k + D r)     du = sum of s dA k    dv = sum of s D r
    dr = s D^T (q + v)      dc = sum of D           df_j = - sum_i dA_ij, as sum_j dA_ij = 0

D is dA by distance instead of by key: the same numbers, read with the rows of the relative shift
(`mask.relative_shift`), since what the shift leaves out and what it should not have read
are zero in dA. Every product goes into a tile's buffer, so that masking, softmax and their
gradients run in the cache. Keys and values of memory and segment come from one product whose
gradient stops at the (detached) memory.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, pad

from txlbench.models.dropout import kept
from txlbench.models.kernels.tiles import (
    PADDING,
    Gradients,
    Shared,
    StreamGroup,
    Tile,
    heads_first,
    stream_groups,
    streams_first,
    tiles,
    transposed,
)
from txlbench.models.mask import Mask
from txlbench.models.positions.encoding import ScoreTerms
from txlbench.models.positions.tables import DistanceTable


class ContextProjection(torch.autograd.Function):
    """A linear map of [memory, segment]; no gradient is computed for the (detached) memory."""

    @staticmethod
    def forward(ctx: Any, segment_BTD: Tensor, context_BSD: Tensor, weight_ID: Tensor) -> Tensor:
        ctx.queries = segment_BTD.shape[1]
        ctx.save_for_backward(context_BSD, weight_ID)
        return linear(context_BSD, weight_ID)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BSI: Tensor) -> tuple[Tensor, None, Tensor]:
        context_BSD, weight_ID = ctx.saved_tensors
        of_weight_ID = grad_BSI.flatten(0, 1).T @ context_BSD.flatten(0, 1)
        new_BTI = grad_BSI[:, -ctx.queries :]
        of_segment = new_BTI.reshape(-1, len(weight_ID)) @ weight_ID
        return of_segment.view(*new_BTI.shape[:2], -1), None, of_weight_ID


def project(segment_BTD: Tensor, context_BSD: Tensor, weight_ID: Tensor) -> Tensor:
    """Projects a context [B, S, D], whose last T states are the segment, to [B, S, I]."""
    projected: Tensor = ContextProjection.apply(  # type: ignore[no-untyped-call]
        segment_BTD, context_BSD, weight_ID.to(segment_BTD.dtype)
    )
    return projected


@dataclass(frozen=True)
class AttentionDropout:
    """The dropout mask of attention probabilities as int8, one a pass, and its scale."""

    kept_HBTS: Tensor
    scale: float

    @classmethod
    def draw(cls, shape: tuple[int, ...], rate: float) -> "AttentionDropout":
        """Draws the mask of a whole pass at once, as the plain path does."""
        return cls(kept(shape, rate, batch_dim=1), 1 / (1 - rate))

    def of(self, values: Tensor, streams: slice, tile: Tile) -> Tensor:
        """Applies a tile's part of the mask to `values`, [H * b, t, W]."""
        kept_HBTS = self.kept_HBTS[:, streams, tile.queries, tile.keys].to(values.dtype)
        mask = pad(kept_HBTS.mul_(self.scale).flatten(0, 1), (0, values.shape[2] - tile.shape[1]))
        return values * mask


class FusedAttention(torch.autograd.Function):
    """Attention and its gradient, tile by tile; called through `fused_attention`."""

    @staticmethod
    def forward(
        ctx: Any,
        query_BTHK: Tensor,
        context_BS2HK: Tensor,
        mask: Mask,
        dropout: AttentionDropout | None,
        decay_HBS: Tensor | None,
        *shared_tensors: Tensor | None,
    ) -> Tensor:
        shared, kept = Shared(*shared_tensors), []
        batch, queries, heads, _ = query_BTHK.shape
        each = heads * queries * mask.keys * query_BTHK.element_size()
        mixed_BTHK, needed = torch.empty_like(query_BTHK), any(ctx.needs_input_grad)
        for group in stream_groups(batch, each):
            keys, values = (heads_first(context_BS2HK[group, :, part], PADDING) for part in (0, 1))
            streams = StreamGroup(group, query_BTHK, keys, values, shared, decay_HBS)
            if needed:
                kept += [keys, values]
            for tile in tiles(queries, mask.keys, each, mask.window):
                scores = streams.scores(tile, mask)
                probabilities = torch.softmax(scores, -1, out=scores)
                used = probabilities if dropout is None else dropout.of(probabilities, group, tile)
                mixed = torch.bmm(used, streams.values[:, tile.wide_keys(used.dtype)])
                mixed_BTHK[group, tile.queries] = streams_first(mixed, streams.count)
                if needed:
                    kept.append(probabilities)
        ctx.mask, ctx.dropout = mask, dropout
        ctx.save_for_backward(query_BTHK, decay_HBS, *shared_tensors, *kept)
        return mixed_BTHK

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_BTHK: Tensor) -> tuple[Tensor | None, ...]:
        query_BTHK, decay_HBS, *rest = ctx.saved_tensors
        shared, kept, mask = Shared(*rest[:4]), iter(rest[4:]), ctx.mask
        batch, queries, heads, size = query_BTHK.shape
        each = heads * queries * mask.keys * query_BTHK.element_size()
        of_query_BTHK = torch.empty_like(query_BTHK)
        of_context_BS2HK = query_BTHK.new_empty(batch, mask.keys, 2, heads, size)
        of_decay_HBS = torch.zeros_like(decay_HBS) if decay_HBS is not None else None
        total = shared.gradients(ctx.needs_input_grad[5:])
        for group in stream_groups(batch, each):
            streams = StreamGroup(group, query_BTHK, next(kept), next(kept), shared)
            gradients = Gradients(streams, total)
            for tile in tiles(queries, mask.keys, each, mask.window):
                grad = heads_first(grad_BTHK[group, tile.queries])
                of_scores = _through_softmax(gradients, grad, next(kept), group, tile, ctx.dropout)
                of_query = gradients.add_scores(of_scores, tile)
                of_query_BTHK[group, tile.queries] = streams_first(of_query, streams.count)
                if of_decay_HBS is not None:
                    streams.add_decay(of_decay_HBS, of_scores, tile)
            for part, of_part in enumerate((gradients.keys, gradients.values)):
                assert of_part is not None, "a group has a tile"
                of_context_BS2HK[group, :, part] = streams_first(
                    of_part[:, : mask.keys], streams.count
                )
        of_shared = vars(total).values()
        return of_query_BTHK, of_context_BS2HK, None, None, of_decay_HBS, *of_shared


def _through_softmax(
    gradients: Gradients,
    grad: Tensor,
    probabilities: Tensor,
    group: slice,
    tile: Tile,
    dropout: AttentionDropout | None,
) -> Tensor:
    """The scores' gradient [H * b, t, W] from that of the output; adds that of the values."""
    used = probabilities if dropout is None else dropout.of(probabilities, group, tile)
    gradients.add_values(used, grad, tile)
    values = gradients.streams.values[:, tile.wide_keys(used.dtype)]
    of_used = torch.bmm(grad, transposed(values))
    of_scores = of_used if dropout is None else dropout.of(of_used, group, tile)
    softmax_backward = torch.ops.aten._softmax_backward_data.out
    softmax_backward(of_scores, probabilities, -1, grad.dtype, grad_input=of_scores)
    return of_scores


def fused_attention(
    query_BTHK: Tensor,
    context_BS2HK: Tensor,
    terms: ScoreTerms,
    mask: Mask,
    dropout: AttentionDropout | None,
) -> Tensor:
    """Mixed values [B, T, H, K]; all products in the queries' number format."""
    scale, dtype = query_BTHK.shape[-1] ** -0.5, query_BTHK.dtype

    def scaled(bias: Tensor | None) -> Tensor | None:
        return None if bias is None else (bias * scale).to(dtype)

    table = terms.table or DistanceTable()
    assert isinstance(table, DistanceTable), "sums have no gradient"
    assert not table.scaled or table.rows_HKS is None, "queries are scaled here"
    rows_HKS, bias_HS = table.rows_HKS, table.bias_HS
    mixed: Tensor = FusedAttention.apply(  # type: ignore[no-untyped-call]
        query_BTHK * scale,
        context_BS2HK,
        mask,
        dropout,
        terms.decay_HBS,
        scaled(terms.content_bias_HK),
        scaled(terms.position_bias_HK),
        None if rows_HKS is None else pad(rows_HKS.mT.to(dtype), (0, 0, 0, PADDING)),
        None if bias_HS is None else pad(bias_HS.to(dtype), (0, PADDING)),
    )
    return mixed
