"""Windows of tokens that give the losses of several targets at several contexts at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Windows:
    """W windows in order of start, and the E losses that they give.

    By causality a window that starts at p without memory gives the loss at context c on token
    p + c, for every c at once.

    Attributes:
        starts: [W], index of each window's first token.
        offsets: [W + 1]; window w gives the losses offsets[w] to offsets[w + 1].
        contexts: [E], the number of tokens before each target in its window.
        lengths: [E], the number of tokens of each target, whose losses are summed.
        order: [E], the place of each loss in the flat [C, T] array.
    """

    starts: NDArray[np.int64]
    offsets: NDArray[np.int64]
    contexts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, contexts: NDArray[np.int64], positions: NDArray[np.int64]) -> "Windows":
        """The windows of all pairs of a context and a position.

        On an even grid whose step s divides the differences of contexts they are as few as
        T + (longest - shortest) / s.
        """
        starts_CT = positions[None, :] - contexts[:, None]
        return cls.of_targets(starts_CT, positions, positions + 1)

    @classmethod
    def of_targets(
        cls,
        starts_CT: NDArray[np.int64],
        firsts_T: NDArray[np.int64],
        stops_T: NDArray[np.int64],
    ) -> "Windows":
        """The windows of targets that are the tokens from `firsts_T` to before `stops_T`.

        Args:
            starts_CT: the first token of each target's window at each context.
        """
        starts_E = starts_CT.ravel()
        order = np.argsort(starts_E, kind="stable")
        starts, counts = np.unique(starts_E, return_counts=True)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        lengths_CT = np.broadcast_to(stops_T - firsts_T, starts_CT.shape)
        contexts = (firsts_T - starts_CT).ravel()[order]
        return cls(starts, offsets, contexts, lengths_CT.ravel()[order], order)

    @property
    def scored_contexts(self) -> NDArray[np.int64]:
        """The numbers of tokens before any token of a target, ascending, each once."""
        within = np.arange(int(self.lengths.max()))
        before = self.contexts[:, None] + within
        return np.unique(before[within < self.lengths[:, None]])

    def __len__(self) -> int:
        return len(self.starts)

    def losses_of(self, first: int, end: int) -> slice:
        """The losses that windows [first, end) give."""
        return slice(int(self.offsets[first]), int(self.offsets[end]))

    def rows_of(self, first: int, end: int) -> NDArray[np.int64]:
        """The window of each of those losses, counted from `first`."""
        return np.repeat(np.arange(end - first), np.diff(self.offsets[first : end + 1]))

    def whole(self, losses: int) -> int:
        """The number of windows that the first `losses` losses complete."""
        return int(np.searchsorted(self.offsets, losses, side="right")) - 1
