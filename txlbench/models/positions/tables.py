"""Tables that score queries by distance, the sinusoids behind them, and their cache.

`DistanceTable` is what relative encodings give for a layer: a row a distance, a bias a distance,
or both. `AngleSums` scores a single query without rows. With W_kR's columns for sines and cosines,
the query's score at distance d is a sum over the frequencies f of the sinusoid (`sinusoid`)::

    s(d) = sum_f a_f sin(d f) + b_f cos(d f) = Re sum_f (b_f - i a_f) e^{i d f}

At d = STEP m + n the factor is e^{i STEP m f} e^{i n f}: the query is turned by each STEP m, and
one small table of e^{i n f} serves them all. A long memory's projected R would be read from main
memory for every token, S x H x K numbers a layer; this stays in the processor's cache.
"""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from txlbench.models.mask import relative_shift

BASE = 10000.0
"""Of the frequencies' geometric row (Vaswani et al. 2017, 3.5)."""


def sinusoid(positions: Tensor, d_model: int, dtype: torch.dtype) -> Tensor:
    """Rows [sin(p f), cos(p f)] in halves, as the official code (Vaswani et al. 2017, 3.5).

    Computed in float64 and rounded once, never below float32: in bfloat16 distances collapse.

    Args:
        positions: [P], any integer or float dtype.
        d_model: width; an odd one drops the last cosine.
        dtype: the parameters' dtype.

    Returns:
        [P, d_model] on the device of `positions`.
    """
    angles = positions.double()[:, None] * frequencies(d_model, positions.device)
    rows = torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :d_model]
    return rows.to(torch.promote_types(dtype, torch.float32))


def frequencies(d_model: int, device: torch.device) -> Tensor:
    """Frequencies of the sines, and of the cosines, in float64: [ceil(d_model / 2)]."""
    halves = torch.arange(0, d_model, 2, dtype=torch.float64, device=device)
    return BASE ** (-halves / d_model)


def cached_sinusoid(
    first: int, last: int, clamp_len: int | None, d_model: int, dtype: torch.dtype, device: str
) -> Tensor:
    """The sinusoids of positions `first`, ..., `last` in that order, kept between calls.

    Compiled models take the result for a constant (`training.state`).
    """
    return _kept(first, last, clamp_len, d_model, dtype, device)


@lru_cache(maxsize=64)
def _kept(
    first: int, last: int, clamp_len: int | None, d_model: int, dtype: torch.dtype, device: str
) -> Tensor:
    step = 1 if last >= first else -1
    positions = torch.arange(first, last + step, step, device=device)
    if clamp_len is not None:
        positions = positions.clamp(max=clamp_len)
    return sinusoid(positions, d_model, dtype)


class DistanceScores(Protocol):
    """How one layer scores its queries by their distance to each key."""

    def position(self, query_HBTK: Tensor) -> Tensor:
        """Scores over sqrt(d_head), [H, B, T, S], or [H, 1, T, S] if they are all streams'."""

    def newest(self, keys: int) -> "DistanceScores":
        """The same for the `keys` shortest distances."""


@dataclass(frozen=True)
class DistanceTable:
    """How one layer scores distances: query . rows / sqrt(d_head) + bias.

    Attributes:
        rows_HKS: after an unused first column the distances S-1, ..., 0; None for a bias alone.
        bias_HS: likewise, the same for every query; None for none.
        scaled: the rows are over sqrt(d_head) already.
    """

    rows_HKS: Tensor | None = None
    bias_HS: Tensor | None = None
    scaled: bool = False

    def position(self, query_HBTK: Tensor) -> Tensor:
        """Scores by key; see `DistanceScores.position`."""
        return relative_shift(self.by_distance(query_HBTK))

    def by_distance(self, query_HBTK: Tensor) -> Tensor:
        """The same, computed anew, as they lie in the rows: [H, B or 1, T, S + 1]."""
        batch, queries, size = query_HBTK.shape[1:]
        bias = None if self.bias_HS is None else self.bias_HS[:, None].to(query_HBTK.dtype)
        if self.rows_HKS is None:
            assert bias is not None, "a table has rows, or a bias, or both"
            return bias[:, None].expand(-1, -1, queries, -1).clone()
        query = query_HBTK if self.scaled else query_HBTK * size**-0.5
        scores = torch.bmm(query.flatten(1, 2), self.rows_HKS.to(query.dtype))
        return (scores if bias is None else scores + bias).unflatten(1, (batch, queries))

    def prescaled(self, dtype: torch.dtype) -> "DistanceTable":
        """The table with rows over sqrt(d_head), laid out to be multiplied with often."""
        rows, bias = self.rows_HKS, self.bias_HS
        if rows is not None and not self.scaled:
            rows = rows * rows.shape[1] ** -0.5
        return DistanceTable(
            None if rows is None else rows.to(dtype).contiguous(),
            None if bias is None else bias.to(dtype),
            scaled=True,
        )

    def newest(self, keys: int) -> "DistanceTable":
        """The table of the `keys` shortest distances, as a view.

        Its unused column is that of a longer distance.
        """
        parts = (self.rows_HKS, self.bias_HS)
        rows, bias = (None if part is None else part[..., -keys - 1 :] for part in parts)
        return DistanceTable(rows, bias, self.scaled)


Tables = tuple[DistanceScores | None, ...]
"""One a layer; None where scores know no distance."""


@dataclass(frozen=True)
class _CachedTables:
    """Tables as far as they reach, and those of the number of keys that was last asked for."""

    reach: int
    tables: Tables
    keys: int
    newest: Tables


def tables_from_cache(
    kept: dict[Hashable, Any],
    name: Hashable,
    keys: int,
    make: Callable[[int], Iterable[DistanceScores | None]],
) -> Tables:
    """The tables of that many keys, cut from cached ones where those reach as far.

    Args:
        kept: the cache.
        name: key of these tables in the cache.
        make: gives each layer's table of a number of keys, scaled.
    """
    cached: _CachedTables | None = kept.get(name)
    if cached is not None and cached.keys == keys:
        return cached.newest
    if cached is None or cached.reach < keys:
        # Twice as far, since memory that grows asks for a little more each time.
        reach = keys if cached is None else 2 * keys
        tables = tuple(make(reach))
    else:
        reach, tables = cached.reach, cached.tables
    newest = tuple(None if table is None else table.newest(keys) for table in tables)
    kept[name] = _CachedTables(reach, tables, keys, newest)
    return newest


STEP = 128
"""Distances a turn: the table of n and, up to some thousand keys, the turns stay small."""


@dataclass(frozen=True)
class Angles:
    """The sinusoids of STEP m and of n, each computed in float64 and rounded once.

    Attributes:
        turns_MF: e^{i STEP m f} of m = M-1, ..., 0, complex.
        table_CN: over (f, part) cos(n f) and -sin(n f), of n = STEP-1, ..., 0.
    """

    turns_MF: Tensor
    table_CN: Tensor

    @classmethod
    def reaching(cls, keys: int, d_model: int, like: Tensor) -> "Angles":
        """The angles of that many keys' distances, in the dtype of `like`."""
        each = frequencies(d_model, like.device)
        turns = _descending(-(-keys // STEP), like) * STEP
        turned = torch.polar(torch.ones_like(each), turns[:, None] * each)
        angles = _descending(STEP, like)[:, None] * each
        table = torch.stack([angles.cos(), -angles.sin()], dim=-1).flatten(1)
        return cls(turned.to(like.dtype.to_complex()), table.to(like.dtype).T.contiguous())


@dataclass(frozen=True)
class AngleSums:
    """How one layer scores the distances S-1, ..., 0 for a single query of a single stream.

    Attributes:
        weight_HKC: W_kR, its columns in pairs (b, -a) of each frequency.
        keys: S.
    """

    weight_HKC: Tensor
    angles: Angles
    keys: int

    def newest(self, keys: int) -> "AngleSums":
        """The sums of the `keys` shortest distances."""
        turns = -(-keys // STEP)
        angles = replace(self.angles, turns_MF=self.angles.turns_MF[-turns:])
        return replace(self, angles=angles, keys=keys)

    def position(self, query_HBTK: Tensor) -> Tensor:
        """Scores [H, 1, 1, S], as `DistanceTable.position` gives them."""
        heads, size, width = self.weight_HKC.shape
        query_H1K = query_HBTK.view(heads, 1, size)
        factors = torch.bmm(query_H1K, self.weight_HKC).view(heads, 1, width // 2, 2)
        turned_HMF = torch.view_as_complex(factors) * self.angles.turns_MF
        scores_HMN = torch.view_as_real(turned_HMF).flatten(2) @ self.angles.table_CN
        return scores_HMN.view(heads, 1, 1, -1)[..., -self.keys :]


def columns_in_pairs(weight_HKD: Tensor) -> Tensor:
    """Reorders W_kR for `AngleSums`: from columns of all sines, then of all cosines, to pairs."""
    sines = -(-weight_HKD.shape[-1] // 2)
    a, b = weight_HKD[..., :sines], weight_HKD[..., sines:]
    b = pad(b, (0, sines - b.shape[-1]))  # an odd width has no last cosine
    return torch.stack([b, -a], dim=-1).flatten(-2)


def _descending(count: int, like: Tensor) -> Tensor:
    return torch.arange(count - 1, -1, -1, dtype=torch.float64, device=like.device)
