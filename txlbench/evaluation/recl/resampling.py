"""Resamples of a text: as many of its blocks as there are, drawn with replacement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.recl.blocks import Blocks
from txlbench.evaluation.recl.ranking import counts_of

CELLS = 32
"""Parts of the tokens' order whose sums are formed at once."""


@dataclass(frozen=True, eq=False)
class Resamples:
    """N resamples of B blocks.

    Attributes:
        copies: [N, B], how often each block was drawn; float32 holds such numbers exactly.
        sizes: [N], tokens.
    """

    copies: NDArray[np.float32]
    sizes: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.sizes)

    def only(self, rows: NDArray[np.intp]) -> "Resamples":
        if len(rows) == len(self):
            return self
        return Resamples(self.copies[rows], self.sizes[rows])

    def hardest_sums(
        self, values: NDArray[np.float64], block: NDArray[np.intp], shares: Sequence[float]
    ) -> NDArray[np.float32]:
        """Sums of V values over the hardest tokens of each resample: [V, R, N].

        These tokens are the first so many of one order, so no resample is ever made. Copies of
        one token are taken or left together.

        Args:
            values: [V, T], the hardest first; the first of them all 1, so that they are counted.
            block: [T], of the same tokens.
        """
        cells = _Cells.of(values.astype(np.float32), block, self.copies)
        return np.stack([cells.sums_until(counts_of(share, self.sizes)) for share in shares], 1)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Tokens in their order, cut in cells of equal width.

    Attributes:
        values: [V, T].
        block: [T].
        copies: [N, B].
        sums: [V, N, 1 + cells], over all tokens before each cell's end.
        width: tokens a cell.
    """

    values: NDArray[np.float32]
    block: NDArray[np.intp]
    copies: NDArray[np.float32]
    sums: NDArray[np.float32]
    width: int

    @classmethod
    def of(
        cls, values: NDArray[np.float32], block: NDArray[np.intp], copies: NDArray[np.float32]
    ) -> "_Cells":
        (number, tokens), blocks = values.shape, copies.shape[1]
        width = -(-tokens // CELLS)
        place = np.arange(tokens) // width * blocks + block
        shape = (CELLS, blocks)
        parts = [np.bincount(place, each, CELLS * blocks).reshape(shape) for each in values]
        weights = np.concatenate(parts).astype(np.float32)
        by_cell = (copies @ weights.T).reshape(len(copies), number, CELLS)
        sums = np.zeros((number, len(copies), CELLS + 1), dtype=np.float32)
        np.cumsum(by_cell.transpose(1, 0, 2), axis=2, out=sums[:, :, 1:])
        return cls(values, block, copies, sums, width)

    def sums_until(self, wanted: NDArray[np.intp]) -> NDArray[np.float32]:
        """[V, N]: over the fewest tokens that have `wanted` [N] copies in their resample.

        Only the cell in which that number is reached is gone through token by token.
        """
        cell = np.count_nonzero(self.sums[0, :, 1:] < wanted[:, None], axis=1)
        rows = np.arange(len(wanted))
        before = self.sums[:, rows, cell]
        ranks = cell[:, None] * self.width + np.arange(self.width)
        ranks = np.minimum(ranks, len(self.block) - 1)
        copies = self.copies[rows[:, None], self.block[ranks]]
        earlier = before[0][:, None] + np.cumsum(copies, axis=1) - copies
        copies[earlier >= wanted[:, None]] = 0
        within: NDArray[Any] = np.stack(
            [(copies * each[ranks]).sum(axis=1) for each in self.values]
        )
        return before + within


def draw_resamples(random: np.random.Generator, number: int, blocks: Blocks) -> Resamples:
    """`number` resamples."""
    drawn = random.integers(blocks.count, size=(number, blocks.count))
    place = drawn + blocks.count * np.arange(number)[:, None]
    copies = np.bincount(place.ravel(), minlength=drawn.size).reshape(drawn.shape)
    return Resamples(copies.astype(np.float32), copies @ blocks.sizes)
