"""`copies`: a synthetic corpus of random texts that repeat, for recall and nothing else.

A text has any of many lengths, so that no fixed distance leads back to its last copy, and stands
several times in a row. A new symbol is drawn uniformly from those that are not among the last new
ones: no text holds a symbol twice, one that recurs is a copy, and it alone tells where the copy
goes on. What is measured is how far back a model finds it. Nothing but a copy predicts a symbol
better than chance. The test split is such symbols without any copy: `probe` makes its own of them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from txlbench.config.base import Split
from txlbench.data.planted import uniform
from txlbench.data.source import ComputedSource


@dataclass(frozen=True)
class CopyProcess:
    """The law of the symbols 0, 1, ...

    Attributes:
        symbols: how many there are; the half of them that was drawn last is not drawn.
        lengths: of texts, ascending; each has as many symbols as another.
        times: how often a text stands in a row.
    """

    symbols: int = 64
    lengths: tuple[int, ...] = tuple(range(4, 33))
    times: int = 4

    def repeated(self, length: int, seed: int) -> NDArray[np.int64]:
        """`length` symbols of texts that repeat, the same on every machine."""
        source = np.random.PCG64(seed)
        fresh = self.fresh(length // self.times + self.lengths[-1], seed + 1)
        chances = np.cumsum(1 / np.array(self.lengths)) / np.sum(1 / np.array(self.lengths))
        found, done, used = [], 0, 0
        while done < length:
            drawn = np.searchsorted(chances[:-1], uniform(source, 1)[0], side="right")
            size = self.lengths[int(drawn)]
            found.append(np.tile(fresh[used : used + size], self.times))
            used, done = used + size, done + self.times * size
        return np.concatenate(found)[:length]

    def fresh(self, length: int, seed: int) -> NDArray[np.int64]:
        """`length` symbols, any symbols // 2 in a row all different."""
        half = self.symbols // 2
        choices = (uniform(np.random.PCG64(seed), length) * (self.symbols - half)).astype(np.int64)
        waiting, drawn = list(range(self.symbols)), np.empty(length, dtype=np.int64)
        for place, choice in enumerate(choices.tolist()):
            drawn[place] = waiting.pop(choice)  # the newest half stands behind all choices
            waiting.append(int(drawn[place]))
        return drawn


PROCESS = CopyProcess()
FIRST = 0x100
"""Code point of the first symbol, a letter of Unicode's Latin Extended-A."""


class Copies(ComputedSource):
    """One letter a symbol; only train and valid have copies."""

    name = "copies"
    SHA256 = "ff67dad0d584bc6a511aeb052c36653360fa586d634a7530933435fbf9cbb702"

    def compute(self, split: Split, length: int, seed: int) -> bytes:
        draw = PROCESS.fresh if split == "test" else PROCESS.repeated
        symbols = draw(length, 10 * seed).tolist()
        return "".join(chr(FIRST + symbol) for symbol in symbols).encode()
