"""Losses summed over targets and divided once, overall and by position in the segment."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass
class LossSum:
    """Sums of losses in float64.

    Attributes:
        length: positions of a segment or window.
        sums, counts: float64 and int64 [length], by position in the segment.
    """

    length: int
    sums: NDArray[np.float64] = field(init=False)
    counts: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.sums = np.zeros(self.length)
        self.counts = np.zeros(self.length, dtype=np.int64)

    def add(self, losses: NDArray[np.floating[Any]], positions: NDArray[np.integer[Any]]) -> None:
        """Adds losses [K] of targets at `positions` [K] of their segments."""
        np.add.at(self.sums, positions, losses.astype(np.float64))
        np.add.at(self.counts, positions, 1)

    @property
    def tokens(self) -> int:
        """Targets scored."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Mean loss in nats a target."""
        return float(self.sums.sum() / self.tokens)

    def by_position(self) -> list[float | None]:
        """Mean loss in nats at each position, None where nothing was scored."""
        return [
            float(total / count) if count else None
            for total, count in zip(self.sums, self.counts, strict=True)
        ]
