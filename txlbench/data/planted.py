"""`planted`: a synthetic corpus whose best loss, and so its RECL, is known at every context.

D streams are interleaved: position t belongs to stream t mod D. Each stream has an alphabet of its
own and one lag, a multiple of D. A symbol repeats the one a lag back with a known probability,
else it is uniform in its alphabet. Every symbol has at most one child, so that nothing in a
context shorter than the lag tells anything about it, and the last token names the stream.
"""

import hashlib
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.config.base import Split
from txlbench.config.catalogue import CORPORA
from txlbench.data.source import CatalogueSource
from txlbench.data.text import TextPart
from txlbench.errors import UserError


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
SEEDS: Mapping[Split, int] = {"train": 1, "valid": 2, "test": 3}
SHA256 = "0e057cdf8023f8c45e28755197f6d7195bcd2f7eea92a1e23269f5f3f9736a67"
"""SHA-256 of the texts of train, valid and test, one after the other."""


class Planted(CatalogueSource):
    """One letter a symbol; each split is a sequence of its own that begins with stream 0."""

    name = "planted"

    def __init__(self, from_file: Path | None = None) -> None:
        if from_file is not None:
            raise UserError(f"--from-file {from_file}: {self.name} is computed", "drop the option")
        super().__init__()

    def checksum(self) -> str:
        return SHA256

    def texts(self, scratch: Path) -> Mapping[Split, TextPart]:
        digest = hashlib.sha256()
        texts: dict[Split, TextPart] = {}
        for split, seed in SEEDS.items():
            text = letters(CORPORA[self.name].tokens[split] or 0, seed)
            digest.update(text)
            path = scratch / f"{split}.txt"
            path.write_bytes(text)
            texts[split] = TextPart(path)
        assert digest.hexdigest() == SHA256, "numpy no longer draws the same bits"
        return texts


def letters(length: int, seed: int) -> bytes:
    """The text of a sequence of the process."""
    table = bytes.maketrans(bytes(range(52)), string.ascii_letters.encode())
    return PROCESS.sequence(length, seed).astype("u1").tobytes().translate(table)
