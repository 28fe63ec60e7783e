"""Cutting consecutive predictions into segments, each prediction scored exactly once.

One rule serves training on full segments (stride = length), half loss (stride = length minus
length // 2) and the sliding windows of evaluation (any stride, 1 in the paper).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload


@dataclass(frozen=True)
class Segment:
    """Inputs [start, start + length), whose last `scored` predictions count."""

    start: int
    length: int
    scored: int

    @property
    def stop(self) -> int:
        return self.start + self.length


@dataclass(frozen=True)
class Segments(Sequence[Segment]):
    """The segments of n predictions by position, so that a huge corpus needs no list.

    Segment k begins at k * stride. The first scores all its positions, every later one its last
    `stride`. The last one is cut at n and scores what is left.

    Attributes:
        n: number of consecutive predictions; 0 has no segments.
        length: inputs a segment.
        stride: how far a segment moves on from the one before it, 1 to length.
    """

    n: int
    length: int
    stride: int

    def __post_init__(self) -> None:
        assert self.n >= 0, f"{self.n} predictions"
        assert 1 <= self.stride <= self.length, f"stride {self.stride} of length {self.length}"

    def __len__(self) -> int:
        if self.n == 0:
            return 0
        return 1 + -(-max(0, self.n - self.length) // self.stride)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        k = range(len(self))[index]
        start = k * self.stride
        stop = min(self.n, start + self.length)
        scored_before = start - self.stride + self.length if k else 0
        return Segment(start, stop - start, stop - scored_before)
