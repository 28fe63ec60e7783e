"""Which streams and queries are scored at once, so that their scores stay in the cache."""

from collections.abc import Iterator
from dataclasses import dataclass

SCORES = 2**20
"""About as many scores a tile; measured: far fewer make small products, far more leave the cache."""


@dataclass(frozen=True)
class Tile:
    """Some streams' queries and the keys that these may see.

    The last key is that of the last query, so within a tile too the last queries line up with
    the last keys.

    Attributes:
        streams, queries, keys: ranges of B, T and S.
    """

    streams: slice
    queries: slice
    keys: slice

    @property
    def shape(self) -> tuple[int, int, int]:
        """Streams, queries and keys in it."""
        b, t, s = (part.stop - part.start for part in (self.streams, self.queries, self.keys))
        return b, t, s


def tiles(
    batch: int, heads: int, queries: int, keys: int, attention_length: int | None
) -> Iterator[Tile]:
    """Covers every stream and query, of each stream the last queries first.

    Cutting queries also leaves out most of the keys that lie in their future.

    Args:
        attention_length: number of keys a query sees, itself included; None for all.
    """
    a_stream = heads * queries * keys
    streams = max(1, SCORES // a_stream)
    parts = -(-a_stream // SCORES)
    for begin in range(0, batch, streams):
        for part in reversed(range(parts)):
            first, end = part * queries // parts, (part + 1) * queries // parts
            if first == end:
                continue
            behind = keys - queries
            oldest = 0 if attention_length is None else behind + first - attention_length + 1
            yield Tile(
                slice(begin, min(batch, begin + streams)),
                slice(first, end),
                slice(max(0, oldest), behind + end),
            )
