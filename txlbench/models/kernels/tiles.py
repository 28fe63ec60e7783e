"""Tiles of fused CPU attention: streams and queries whose scores fit the processor's cache.

`StreamGroup` scores a tile; `Gradients` sums up what comes back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from txlbench.models.mask import Mask, blocked_columns, mask_TS, relative_shift, unshifted_rows

TILE_BYTES = 2**22
"""Bytes of a tile's scores. Measured: far fewer make products small, far more are slow too."""


PADDING = 96
"""Zeros behind keys and distances: at least as many as `row_length` ever adds."""


def row_length(numbers: int, dtype: torch.dtype) -> int:
    """The length to which rows of so many numbers are padded: longer in 16 bits.

    There products of rows that are no multiple of 32 numbers were measured to take up to three
    times as long, and of rows a multiple of 1 KiB apart, which share their places in the cache,
    up to twice.
    """
    if dtype.itemsize > 2:
        return numbers
    whole = -(-numbers // 32) * 32
    return whole if whole % 512 else whole + 32


@dataclass(frozen=True)
class Tile:
    """Some queries and the keys that these may see.

    The last key is that of the last query, so within a tile too the last queries line up with
    the last keys.
    """

    queries: slice
    keys: slice

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of queries and keys."""
        return self.queries.stop - self.queries.start, self.keys.stop - self.keys.start

    def wide_keys(self, dtype: torch.dtype) -> slice:
        """Its keys, and the padding behind them."""
        start, (_, keys) = self.keys.start, self.shape
        return slice(start, start + row_length(keys, dtype))

    def distances(self, rows: int, dtype: torch.dtype) -> slice:
        """A table's unused row, the tile's distances, and the padding behind them.

        Args:
            rows: of the table, which has PADDING more at its end.
        """
        keys = self.shape[1]
        start = rows - PADDING - (keys + 1)
        return slice(start, start + row_length(row_length(keys, dtype) + 1, dtype))


def stream_groups(batch: int, stream_bytes: int) -> Iterator[slice]:
    """Groups of streams whose scores fill a tile, where those of one have that many bytes."""
    size = max(1, TILE_BYTES // stream_bytes)
    return (slice(begin, min(batch, begin + size)) for begin in range(0, batch, size))


def tiles(
    queries: int, keys: int, stream_bytes: int, attention_length: int | None
) -> Iterator[Tile]:
    """Cuts a stream's queries into tiles, which skip most keys in the future.

    Args:
        stream_bytes: of its scores.
        attention_length: number of keys a query sees, itself included; None for all.
    """
    parts, before = min(queries, -(-stream_bytes // TILE_BYTES)), keys - queries
    for part in range(parts):
        first, end = part * queries // parts, (part + 1) * queries // parts
        oldest = 0 if attention_length is None else max(0, before + first - attention_length + 1)
        yield Tile(slice(first, end), slice(oldest, before + end))


@dataclass(frozen=True)
class Shared:
    """The operands that all streams share.

    Attributes:
        u_HK, v_HK: added to queries for content and for position, over sqrt(d_head) as these are;
            None for nothing.
        rows_HSK: after an unused first row those of the distances S-1, ..., 0, then some zeros,
            see `row_length`; None for none.
        bias_HS: likewise, added to scores; None for none.
    """

    u_HK: Tensor | None
    v_HK: Tensor | None
    rows_HSK: Tensor | None
    bias_HS: Tensor | None

    def gradients(self, needed: Sequence[bool]) -> "Shared":
        """Zeros of the same shapes, in float32 at least, to sum in; None where none is needed."""
        parts = zip(vars(self).values(), needed, strict=True)
        return Shared(*(_zeros(part) if wanted else None for part, wanted in parts))


class StreamGroup:
    """Queries, keys and values of some streams, heads first: [H * b, T or S, K].

    Attributes:
        content, position: queries as they meet keys, and as they meet distances.
        keys, values: with `PADDING` zeros after them.
    """

    def __init__(
        self,
        streams: slice,
        query_BTHK: Tensor,
        keys: Tensor,
        values: Tensor,
        shared: Shared,
        decay_HBS: Tensor | None = None,
    ) -> None:
        self.streams, self.count = streams, streams.stop - streams.start
        queries = heads_first(query_BTHK[streams])
        self.content = _plus(queries, shared.u_HK)
        self.position = _plus(queries, shared.v_HK)
        self.keys, self.values, self.shared = keys, values, shared
        self.decay_HbS = None if decay_HBS is None else decay_HBS[:, streams]

    def scores(self, tile: Tile, mask: Mask) -> Tensor:
        """The tile's scores [H * b, t, W], masked with -inf, contiguous; W is at least s.

        Those of positions come out of their shifted rows first; those of content are added.
        """
        wide = tile.wide_keys(self.keys.dtype)
        content, keys = self.content[:, tile.queries], self.keys[:, wide]
        if self.shared.rows_HSK is None:
            scores = torch.bmm(content, transposed(keys))
            self._add_bias(scores, tile)
        else:
            by_key = self._positions(tile, keys.shape[1], self.shared.rows_HSK)
            scores = torch.baddbmm(by_key, content, transposed(keys))
        if self.decay_HbS is not None:
            self._add_decay(scores, tile, mask, self.decay_HbS)
        for columns, hidden in hidden_columns(
            tile.shape, keys.shape[1], mask.attention_length, keys.dtype, mask.sinks
        ):
            scores[..., columns].add_(hidden)
        if mask.valid_len_B is not None:
            self._mask_reset(scores, tile, mask, mask.valid_len_B)
        return scores

    def _positions(self, tile: Tile, width: int, rows_HSK: Tensor) -> Tensor:
        """Scores of distances, by key, as a view."""
        bias_HS = self.shared.bias_HS
        distances = tile.distances(rows_HSK.shape[1], rows_HSK.dtype)
        by_distance = torch.bmm(self.positions(tile), transposed(rows_HSK[:, distances]))
        if bias_HS is not None:
            by_distance += bias_HS[:, None, distances]
        queries, length = tile.shape[0], by_distance.shape[2]
        return relative_shift(by_distance.view(-1, queries, length), width)

    def _add_bias(self, scores: Tensor, tile: Tile) -> None:
        """The bias of distances where there are no rows: one for all streams."""
        bias_HS = self.shared.bias_HS
        if bias_HS is None:
            return
        distances = tile.distances(bias_HS.shape[1], bias_HS.dtype)
        by_distance_HTL = bias_HS[:, None, distances].expand(-1, tile.shape[0], -1)
        by_key_HTW = relative_shift(by_distance_HTL, scores.shape[2])
        scores.unflatten(0, (-1, self.count)).add_(by_key_HTW[:, None])

    def _add_decay(self, scores: Tensor, tile: Tile, mask: Mask, decay_HbS: Tensor) -> None:
        """Query minus key, before it is rounded to the scores' format: near keys have it exact."""
        before = mask.keys - mask.queries
        of_queries = decay_HbS[..., before + tile.queries.start : before + tile.queries.stop]
        added = of_queries[..., None] - decay_HbS[..., None, tile.keys]
        scores[..., : tile.shape[1]].add_(added.flatten(0, 1))

    def add_decay(self, total_HBS: Tensor, grad: Tensor, tile: Tile) -> None:
        """Adds the gradient of the decay from that of a tile's scores, [H * b, t, W]."""
        summed = grad[..., : tile.shape[1]].sum(1, dtype=total_HBS.dtype)
        total_HBS[:, self.streams, tile.keys].sub_(summed.unflatten(0, (-1, self.count)))

    def positions(self, tile: Tile) -> Tensor:
        """The tile's queries as they meet the table of distances: [H, b * t, K]."""
        return self.position[:, tile.queries].unflatten(0, (-1, self.count)).flatten(1, 2)

    def _mask_reset(self, scores: Tensor, tile: Tile, mask: Mask, valid_len_B: Tensor) -> None:
        oldest_B = mask.keys - mask.queries - valid_len_B[self.streams] - tile.keys.start
        reset_BS = torch.arange(tile.shape[1], device=scores.device) < oldest_B[:, None]
        hidden_BS = scores.new_zeros(reset_BS.shape).masked_fill_(reset_BS, float("-inf"))
        of_keys = scores[..., : tile.shape[1]]
        of_keys.unflatten(0, (-1, self.count)).add_(hidden_BS[:, None])


class Gradients:
    """Gradients of one group of streams, summed over tiles; what is shared goes to `total`.

    Sums grow by `add_`: after `sum[part] += more` Python writes the part onto itself.

    Attributes:
        keys, values: [H * b, S, K], more rows may follow; None before the first tile.
    """

    def __init__(self, streams: StreamGroup, total: Shared) -> None:
        self.streams, self.total = streams, total
        self.keys: Tensor | None = None
        self.values: Tensor | None = None

    def add_values(self, used: Tensor, grad: Tensor, tile: Tile) -> None:
        """From probabilities [H * b, t, W] as they mixed values, and the mixture's gradient."""
        self.values = self._sum(self.values, torch.bmm(used.mT, grad), tile)

    def _sum(self, total: Tensor | None, part: Tensor, tile: Tile) -> Tensor:
        """`total` with a tile's part; a tile of all keys is the only one, and the sum itself."""
        all_keys = self.streams.keys.shape[1] - PADDING
        if total is None and tile.shape[1] == all_keys:
            return part
        total = torch.zeros_like(self.streams.keys) if total is None else total
        total[:, tile.wide_keys(part.dtype)].add_(part)
        return total

    def add_scores(self, grad: Tensor, tile: Tile) -> Tensor:
        """The queries' gradient [H * b, t, K] from that of the scores [H * b, t, W].

        `grad` is zero where a query does not see a key.
        """
        streams = self.streams
        of_keys = torch.bmm(grad.mT, streams.content[:, tile.queries])
        self.keys = self._sum(self.keys, of_keys, tile)
        of_query = torch.bmm(grad, streams.keys[:, tile.wide_keys(grad.dtype)])
        _add_sum(self.total.u_HK, of_query)
        if streams.shared.rows_HSK is not None:
            of_query += self._add_distances(grad, tile, streams.shared.rows_HSK)
        elif self.total.bias_HS is not None:
            self._add_bias(grad, tile, self.total.bias_HS)
        return of_query

    def _add_distances(self, grad: Tensor, tile: Tile, rows_HSK: Tensor) -> Tensor:
        """The positions' part of `add_scores`."""
        heads, rows, size = rows_HSK.shape
        distances = tile.distances(rows, grad.dtype)
        shifted = by_distance(grad, distances.stop - distances.start)
        grad_HNS = shifted.view(heads, -1, shifted.shape[2])
        if self.total.rows_HSK is not None:
            products = torch.bmm(grad_HNS.mT, self.streams.positions(tile))
            self.total.rows_HSK[:, distances].add_(products)
        if self.total.bias_HS is not None:
            of_bias_HS = grad_HNS.sum(1, dtype=self.total.bias_HS.dtype)
            self.total.bias_HS[:, distances].add_(of_bias_HS)
        of_position = torch.bmm(grad_HNS, rows_HSK[:, distances]).view(*grad.shape[:2], size)
        _add_sum(self.total.v_HK, of_position)
        return of_position

    def _add_bias(self, grad: Tensor, tile: Tile, total_HS: Tensor) -> None:
        """The gradient of a bias of distances without rows: summed over streams, then shifted."""
        distances = tile.distances(total_HS.shape[1], grad.dtype)
        summed_HTW = grad.unflatten(0, (len(total_HS), -1)).sum(1, dtype=total_HS.dtype)
        shifted = by_distance(summed_HTW, distances.stop - distances.start)
        total_HS[:, distances].add_(shifted.sum(1))


def heads_first(states_BTHK: Tensor, padding: int = 0) -> Tensor:
    """[B, T, H, K] -> [H * B, T, K], contiguous; `padding` zeros may follow the T."""
    batch, length, heads, size = states_BTHK.shape
    states = states_BTHK.new_empty(heads, batch, length + padding, size)
    states[:, :, :length] = states_BTHK.permute(2, 0, 1, 3)
    states[:, :, length:] = 0
    return states.flatten(0, 1)


def transposed(rows: Tensor) -> Tensor:
    """[N, S, K] -> [N, K, S] as a product reads it at once: 16 bits in a part of a buffer are
    copied row by row before, which is many times faster than the product's own copy."""
    return (rows if rows.element_size() > 2 else rows.contiguous()).mT


def streams_first(states: Tensor, streams: int) -> Tensor:
    """[H * b, T, K] -> [b, T, H, K], as a view."""
    return states.unflatten(0, (-1, streams)).permute(1, 2, 0, 3)


def by_distance(grad: Tensor, length: int) -> Tensor:
    """The gradient before the relative shift: [H * b, t, W] -> [H * b, t, length]."""
    products, queries, keys = grad.shape
    shifted = grad.new_empty(products, queries, length)
    shifted.flatten(1)[:, :queries] = 0
    rows = unshifted_rows(shifted)
    rows[..., :keys] = grad
    rows[..., keys:] = 0
    return shifted


@lru_cache(maxsize=64)
def hidden_columns(
    shape: tuple[int, int],
    width: int,
    attention_length: int | None,
    dtype: torch.dtype,
    sinks: int = 0,
) -> list[tuple[slice, Tensor]]:
    """The columns in which a query must not see a key, and what is added to scores there.

    Args:
        shape: queries and keys.
        width: columns, those that are no keys too.
    """
    queries, keys = shape
    mask_TW = torch.full((queries, width), float("-inf"), dtype=dtype)
    mask_TW[:, :keys] = mask_TS(queries, keys, attention_length, mask_TW, sinks)
    window = None if attention_length is None else attention_length - sinks
    columns = blocked_columns(queries, keys, window, width)
    return [(part, mask_TW[:, part].contiguous()) for part in columns]


def _plus(queries: Tensor, bias_HK: Tensor | None) -> Tensor:
    """Queries [H * b, T, K] with the bias of each head."""
    if bias_HK is None:
        return queries
    heads, size = bias_HK.shape
    return (queries.view(heads, -1, size) + bias_HK[:, None]).view(queries.shape)


def _zeros(part: Tensor | None) -> Tensor | None:
    if part is None:
        return None
    return torch.zeros_like(part, dtype=torch.promote_types(part.dtype, torch.float32))


def _add_sum(total_HK: Tensor | None, grad: Tensor) -> None:
    """Adds the sum over streams and queries of `grad`, [H * b, t, K]."""
    if total_HK is not None:
        total_HK += grad.unflatten(0, (len(total_HK), -1)).sum((1, 2), dtype=total_HK.dtype)
