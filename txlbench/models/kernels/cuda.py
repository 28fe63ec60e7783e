"""Attention on a CUDA device: FlexAttention, one kernel with positions added inside.

Scores of distances are one product of queries and a table's rows, [B, H, T, S + 1]. The kernel
finds each key's in the row (`mask.distance`), adds it to the key's content score, and masks,
normalises and mixes without a further [T, S] tensor. It knows no attention dropout.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from txlbench.models.mask import Mask, distance
from txlbench.models.positions.encoding import ScoreTerms
from txlbench.models.positions.tables import DistanceTable

SMALLEST_HEAD = 16
"""Numbers a head that the kernel needs at least."""


def flexible_attention(
    query_BTHK: Tensor, context_BS2HK: Tensor, terms: ScoreTerms, mask: Mask
) -> Tensor:
    """Mixed values [B, T, H, K]; equal to the plain path's without attention dropout."""
    query_HBTK = query_BTHK.permute(2, 0, 1, 3)
    key_BHSK, value_BHSK = context_BS2HK.permute(2, 0, 3, 1, 4)
    mixed_BHTK: Any = _kernel(query_BTHK.device.type)(
        terms.content_query(query_HBTK).transpose(0, 1),
        key_BHSK,
        value_BHSK,
        score_mod=_added(_by_distance(query_HBTK, terms), terms.decay_HBS, mask),
        block_mask=_blocks(
            mask.queries, mask.keys, mask.attention_length, mask.sinks, str(query_BTHK.device)
        ),
    )
    mixed_BTHK: Tensor = mixed_BHTK.transpose(1, 2)
    return mixed_BTHK


def _by_distance(query_HBTK: Tensor, terms: ScoreTerms) -> Tensor | None:
    """Scores of positions by distance: [B, H, T, S + 1], or [H, S + 1] for a bias alone."""
    if terms.table is None:
        return None
    assert isinstance(terms.table, DistanceTable), "sums have no gradient"
    if terms.table.rows_HKS is None:
        return terms.table.bias_HS
    return terms.table.by_distance(terms.position_query(query_HBTK)).transpose(0, 1)


def _added(
    by_distance: Tensor | None, decay_HBS: Tensor | None, mask: Mask
) -> Callable[..., Tensor]:
    """The `score_mod` of FlexAttention: adds positions and decay, hides states before a reset."""
    queries, keys, valid_len_B = mask.queries, mask.keys, mask.valid_len_B

    def score(content: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if by_distance is not None:
            # In the future, which the mask hides, there is nothing to read.
            column = (keys - distance(i, j, queries, keys)).clamp(max=keys)
            one_row = by_distance.dim() == 2
            content = content + (
                by_distance[h, column] if one_row else by_distance[b, h, i, column]
            )
        if decay_HBS is not None:
            content = content + decay_HBS[h, b, keys - queries + i] - decay_HBS[h, b, j]
        if valid_len_B is not None:
            valid = j >= keys - queries - valid_len_B[b]
            content = torch.where(valid, content, -float("inf"))
        return content

    return score


@lru_cache(maxsize=64)
def _blocks(
    queries: int, keys: int, attention_length: int | None, sinks: int, device: str
) -> BlockMask:
    """The causal mask in blocks; blocks that are fully masked are skipped."""
    window = keys if attention_length is None else attention_length - sinks

    def sees(_b: Tensor, _h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        apart = distance(i, j, queries, keys)
        return (apart >= 0) & ((apart < window) | (j < sinks))

    return create_block_mask(sees, None, None, queries, keys, device=device)


def _kernel(device: str) -> Callable[..., Any]:
    """FlexAttention, compiled unless on a CPU or within a compiled forward pass."""
    if device == "cpu" or torch.compiler.is_compiling():
        return flex_attention
    return _compiled()


@cache
def _compiled() -> Callable[..., Any]:
    return torch.compile(flex_attention, dynamic=False)
