"""Which streams and queries are scored at once, so that their scores stay in the cache."""

from collections.abc import Iterator
from dataclasses import dataclass

TILE_BYTES = 2**22
"""Of a tile's scores: far fewer were measured to make products small, far more to be slow too."""


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
