"""Blocks of consecutive tokens, which are flipped and drawn together as they depend on another."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from txlbench.errors import UserError

REACH = 16
"""Tokens of text that a block covers at least."""
FEWEST = 50


@dataclass(frozen=True, eq=False)
class Blocks:
    """The block of each of T positions.

    Attributes:
        index: [T], ascending from 0.
        length: positions a block; the last may have fewer.
    """

    index: NDArray[np.intp]
    length: int

    @property
    def count(self) -> int:
        return int(self.index[-1]) + 1

    @property
    def sizes(self) -> NDArray[np.intp]:
        return np.bincount(self.index)


def blocks_of(positions: NDArray[np.int64]) -> Blocks:
    """Blocks over ascending `positions` [T]; those that lie unevenly count as their closest pair.

    Raises:
        UserError: where there are fewer than 50.
    """
    spacing = int(np.diff(positions).min()) if len(positions) > 1 else REACH
    length = -(-REACH // spacing)
    blocks = Blocks(np.arange(len(positions)) // length, length)
    if blocks.count < FEWEST:
        raise UserError(
            f"too few tokens: {len(positions):,} make {blocks.count} blocks of {length}, and the "
            f"test against noise needs {FEWEST}",
            f"score at least {(FEWEST - 1) * length + 1:,} tokens",
        )
    return blocks
