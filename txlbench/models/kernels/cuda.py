"""Attention on a CUDA device: FlexAttention, one kernel with positions added inside.

Scores of distances are one product of queries and a table's rows, [B, H, T, S + 1]. The kernel
finds each key's in the row (`mask.distance`), adds it to the key's content score, and masks,
normalises and mixes without a further [T, S] tensor.

Attention dropout comes after the softmax, where the kernel lets nobody in. With the mask m, a
function of positions (`PositionDropout`), and probabilities P of scores A over all keys::

    O = sum_j P_j m_j w_j / (1 - p) = exp(lse_kept - lse_all) / (1 - p) * softmax(A of kept keys) w

where lse is the logarithm of the sum of exp A. So the kernel runs twice: over the kept keys, and
for lse_all over all of them with values of `LEAST_VALUES` numbers, which are not used.
"""

from collections.abc import Callable
from dataclasses import dataclass
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
LEAST_VALUES = 16
"""Numbers of a value that it needs at least."""
DROPPED = 60.0
"""What a dropped key's score is lowered by: e^-60 is nothing beside any kept key, and finite, so
that a query whose keys are all dropped mixes next to nothing, with a gradient that is a number."""


@dataclass(frozen=True)
class PositionDropout:
    """Attention dropout by a mask that is a function of position.

    Whether query i of stream b and head h keeps key j is a hash of its place i S + j, by two
    numbers of 32 bits that stream and head have from a seed. So forward and backward pass, fused
    and plain, find one mask without keeping it. The rate is exact to 2 ** -24.

    Attributes:
        one_BH, other_BH: the two numbers, int32.
        keys: S.
        dropped: of the 2 ** 24 values of a hash.
        scale: 1 / (1 - rate), of what is kept.
    """

    one_BH: Tensor
    other_BH: Tensor
    keys: int
    dropped: int
    scale: float

    @classmethod
    def draw(
        cls, batch: int, heads: int, keys: int, rate: float, device: torch.device
    ) -> "PositionDropout":
        """Draws a pass's mask from PyTorch's random source of the device, which does not wait."""
        one, other = torch.randint(-(2**31), 2**31, (2,), device=device).to(torch.int32)
        place_BH = torch.arange(batch * heads, dtype=torch.int32, device=device).view(batch, heads)
        streams_BH = _hashed(place_BH, one, other), _hashed(place_BH, other, one)
        return cls(*streams_BH, keys, round(rate * 2**24), 1 / (1 - rate))

    def keeps(self, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Whether query i of stream b and head h keeps key j: bool, in their common shape."""
        place = (i * self.keys + j).to(torch.int32)
        hashed = _hashed(place, self.one_BH[b, h], self.other_BH[b, h])
        return ((hashed >> 8) & 0xFFFFFF) >= self.dropped

    def onto(self, probabilities_HBTS: Tensor) -> Tensor:
        """The probabilities of all keys, dropped and scaled: the plain computation."""
        heads, batch, queries, keys = probabilities_HBTS.shape
        h, b, i, j = (
            torch.arange(size, device=probabilities_HBTS.device).view(shape)
            for size, shape in (
                (heads, (-1, 1, 1, 1)),
                (batch, (-1, 1, 1)),
                (queries, (-1, 1)),
                (keys, (-1,)),
            )
        )
        kept_HBTS = self.keeps(b, h, i, j).to(probabilities_HBTS.dtype)
        return probabilities_HBTS * kept_HBTS * self.scale


def _hashed(place: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """A hash of 32 bits, int32: the multipliers and shifts of Wellons' lowbias32, keyed twice."""
    mixed = place ^ one
    mixed = (mixed ^ ((mixed >> 16) & 0xFFFF)) * 0x7FEB352D
    mixed = mixed ^ other
    mixed = (mixed ^ ((mixed >> 15) & 0x1FFFF)) * (0x846CA68B - 2**32)
    return mixed ^ ((mixed >> 16) & 0xFFFF)


def flexible_attention(
    query_BTHK: Tensor,
    context_BS2HK: Tensor,
    terms: ScoreTerms,
    mask: Mask,
    dropout: PositionDropout | None = None,
) -> Tensor:
    """Mixed values [B, T, H, K]; equal to the plain path's with the same mask of dropout."""
    query_HBTK = query_BTHK.permute(2, 0, 1, 3)
    key_BHSK, value_BHSK = context_BS2HK.permute(2, 0, 3, 1, 4)
    query_BHTK = terms.content_query(query_HBTK).transpose(0, 1)
    score = _added(_by_distance(query_HBTK, terms), terms.decay_HBS, mask)
    blocks = _blocks(
        mask.queries, mask.keys, mask.attention_length, mask.sinks, str(query_BTHK.device)
    )
    kernel = _kernel(query_BTHK.device.type)
    if dropout is None:
        mixed_BHTK = kernel(query_BHTK, key_BHSK, value_BHSK, score_mod=score, block_mask=blocks)
        return mixed_BHTK.transpose(1, 2)
    from torch.nn.attention.flex_attention import AuxRequest  # since PyTorch 2.9

    asked: dict[str, Any] = {"block_mask": blocks, "return_aux": AuxRequest(lse=True)}
    mixed_BHTK, kept = kernel(
        query_BHTK, key_BHSK, value_BHSK, score_mod=_without_dropped(score, dropout), **asked
    )
    few = value_BHSK[..., :LEAST_VALUES]
    _, every = kernel(query_BHTK, key_BHSK, few, score_mod=score, **asked)
    share_BHT = (kept.lse - every.lse).exp() * dropout.scale
    return (mixed_BHTK * share_BHT[..., None].to(mixed_BHTK.dtype)).transpose(1, 2)


def _without_dropped(
    score: Callable[..., Tensor], dropout: PositionDropout
) -> Callable[..., Tensor]:
    """The `score_mod` after which dropped keys are next to nothing."""

    def kept(content: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        scored = score(content, b, h, i, j)
        return torch.where(dropout.keeps(b, h, i, j), scored, scored - DROPPED)

    return kept


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


SHAPES = 64
"""For which the kernel is compiled at most: beyond PyTorch's 8 it would compute unfused, unsaid."""


@cache
def _compiled() -> Callable[..., Any]:
    limits: Any = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, SHAPES)
    return torch.compile(flex_attention, dynamic=False)
