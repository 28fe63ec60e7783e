"""`planted`: a synthetic corpus whose best loss, and so its RECL, is known at every context.

D streams are interleaved: position t belongs to stream t mod D. Each stream has an alphabet of its
own and one lag, a multiple of D. A symbol repeats the one a lag back with a known probability,
else it is uniform in its alphabet. Every symbol has at most one child, so that nothing in a
context shorter than the lag tells anything about it, and the last token names the stream.
"""

import string
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.config.base import Split
from txlbench.data.source import ComputedSource


@dataclass(frozen=True)
class PlantedProcess:
    """The law of the symbols 0, 1, ...; streams own consecutive ranges of them.

    Alphabets shrink as lags grow, so that the hardest tokens at a context are those of the
    shortest lag beyond it.

    Attributes:
        lags: tokens back at which each stream repeats itself.
        alphabets: how many symbols each stream has.
        repeats: the probability with which a symbol repeats.
    """

    lags: tuple[int, ...] = (16, 72, 136, 200)
    alphabets: tuple[int, ...] = (16, 12, 9, 7)
    repeats: float = 0.95

    def __post_init__(self) -> None:
        streams = len(self.lags)
        assert streams == len(self.alphabets), f"{streams} lags, {len(self.alphabets)} alphabets"
        assert all(lag > 0 and lag % streams == 0 for lag in self.lags), f"lags {self.lags}"

    def sequence(self, length: int, seed: int) -> NDArray[np.int64]:
        """`length` symbols, the same on every machine; stream 0 begins."""
        symbols = np.empty(length, dtype=np.int64)
        source = np.random.PCG64(seed)
        repeated = uniform(source, length) < self.repeats
        drawn = uniform(source, length)
        for stream, (lag, size) in enumerate(zip(self.lags, self.alphabets, strict=True)):
            own = slice(stream, None, len(self.lags))
            first = sum(self.alphabets[:stream])
            begun = _last_begun(repeated[own], lag // len(self.lags))
            symbols[own] = first + (drawn[own] * size).astype(np.int64)[begun]
        return symbols

    def losses(
        self, ids: NDArray[Any], positions: NDArray[np.int64], contexts: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The lowest possible mean loss, in nats, token by token.

        Args:
            ids: a sequence, its symbols renamed in any way.
            positions: indices in it of the predicted tokens.
            contexts: how many predecessors of each are given, at least 1; shapes broadcast.
        """
        positions, contexts = np.broadcast_arrays(positions, contexts)
        assert (contexts >= 1).all(), "without a predecessor the stream is not known"
        assert (contexts <= positions).all(), "a context reaches back beyond the sequence"
        stream = positions % len(self.lags)
        lag, size = np.array(self.lags)[stream], np.array(self.alphabets)[stream]
        seen = lag <= contexts
        parent = np.where(seen, positions - lag, 0)
        same = np.asarray(ids[positions] == ids[parent])
        known = (1 - self.repeats) / size + self.repeats * same
        losses: NDArray[np.float64] = -np.log(np.where(seen, known, 1 / size))
        return losses


def uniform(source: np.random.PCG64, count: int) -> NDArray[np.float64]:
    """Numbers in [0, 1) from raw bits: numpy promises the same bits for ever, and only bits."""
    bits: NDArray[np.uint64] = source.random_raw(count) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def _last_begun(repeated: NDArray[np.bool_], lag: int) -> NDArray[np.int64]:
    """Returns where the value of each element was drawn, going back by `lag` while it repeats."""
    rows = -(-len(repeated) // lag)
    padded = np.ones(rows * lag, dtype=bool)
    padded[: len(repeated)] = repeated
    # In a table with a chain in each column; what has nothing a lag back counts from row 0.
    drawn_in = np.where(padded.reshape(rows, lag), 0, np.arange(rows)[:, None])
    begun = np.maximum.accumulate(drawn_in, axis=0) * lag + np.arange(lag)
    return begun.reshape(-1)[: len(repeated)]


PROCESS = PlantedProcess()


class Planted(ComputedSource):
    """One letter a symbol; each split is a sequence of its own that begins with stream 0."""

    name = "planted"
    SHA256 = "0e057cdf8023f8c45e28755197f6d7195bcd2f7eea92a1e23269f5f3f9736a67"

    def compute(self, split: Split, length: int, seed: int) -> bytes:  # noqa: ARG002
        return letters(length, seed)


def letters(length: int, seed: int) -> bytes:
    """The text of a sequence of the process."""
    table = bytes.maketrans(bytes(range(52)), string.ascii_letters.encode())
    return PROCESS.sequence(length, seed).astype("u1").tobytes().translate(table)
