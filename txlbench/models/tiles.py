"""Which streams and queries are scored at once, so that their scores stay in the cache."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

TILE_BYTES = 2**22
"""Of a tile's scores: far fewer were measured to make products small, far more to be slow too."""


PADDING = 96
"""More than is ever put after keys or distances to make rows long enough."""


def row_length(numbers: int, dtype: torch.dtype) -> int:
    """How long rows of so many numbers are made for products: longer in 16 bits.

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
        """How many queries and keys."""
        return self.queries.stop - self.queries.start, self.keys.stop - self.keys.start

    def wide_keys(self, dtype: torch.dtype) -> slice:
        """Its keys, and after them what makes rows of scores long enough."""
        start, (_, keys) = self.keys.start, self.shape
        return slice(start, start + row_length(keys, dtype))

    def distances(self, rows: int, dtype: torch.dtype) -> slice:
        """Where a table has an unused row, the tile's distances, and what makes rows long enough.

        Args:
            rows: of the table, which has PADDING more at its end.
        """
        keys = self.shape[1]
        start = rows - PADDING - (keys + 1)
        return slice(start, start + row_length(row_length(keys, dtype) + 1, dtype))


def stream_groups(batch: int, stream_bytes: int) -> Iterator[slice]:
    """Streams taken together, where the scores of one have that many bytes."""
    size = max(1, TILE_BYTES // stream_bytes)
    return (slice(begin, min(batch, begin + size)) for begin in range(0, batch, size))


def tiles(
    queries: int, keys: int, stream_bytes: int, attention_length: int | None
) -> Iterator[Tile]:
    """Covers every query of a stream; cut, most keys in their future are left out.

    Args:
        stream_bytes: of its scores.
        attention_length: number of keys a query sees, itself included; None for all.
    """
    parts, before = min(queries, -(-stream_bytes // TILE_BYTES)), keys - queries
    for part in range(parts):
        first, end = part * queries // parts, (part + 1) * queries // parts
        oldest = 0 if attention_length is None else max(0, before + first - attention_length + 1)
        yield Tile(slice(first, end), slice(oldest, before + end))
