"""`copies`: a synthetic corpus of random texts, each repeated, for recall and nothing else.

A text is 8, 16, 32, 64 or 128 symbols, drawn uniformly, and stands four times in a row; each length
has as many symbols as another. Nothing but a copy predicts a symbol better than chance. The test
split is symbols without any copy: `probe` makes its own of them.
"""

import hashlib
import string
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from txlbench.config.base import Split
from txlbench.config.catalogue import CORPORA
from txlbench.data.planted import SEEDS, uniform
from txlbench.data.source import CatalogueSource
from txlbench.data.text import TextPart
from txlbench.errors import UserError

SYMBOLS = 26
LENGTHS = (8, 16, 32, 64, 128)
TIMES = 4
"""How often a text stands in a row."""
SHA256 = "6b1ef91cfdd0d99ddeff474a0ba41232e09d3b30aeb931e86283293239a4c514"
"""SHA-256 of the texts of train, valid and test, one after the other."""


def repeated_texts(length: int, seed: int) -> NDArray[np.int64]:
    """`length` symbols of texts that stand four times each, the same on every machine."""
    source, found, done = np.random.PCG64(seed), [], 0
    shares = np.cumsum(1 / np.array(LENGTHS)) / np.sum(1 / np.array(LENGTHS))
    while done < length:
        size = LENGTHS[int(np.searchsorted(shares[:-1], uniform(source, 1)[0], side="right"))]
        found.append(np.tile(random_symbols(source, size), TIMES))
        done += TIMES * size
    return np.concatenate(found)[:length]


def random_symbols(source: np.random.PCG64, length: int) -> NDArray[np.int64]:
    """Symbols without any copy."""
    return (uniform(source, length) * SYMBOLS).astype(np.int64)


class Copies(CatalogueSource):
    """One letter a symbol; only train and valid have copies."""

    name = "copies"

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
            length = CORPORA[self.name].tokens[split] or 0
            symbols = (
                random_symbols(np.random.PCG64(seed), length)
                if split == "test"
                else repeated_texts(length, seed)
            )
            text = np.frombuffer(string.ascii_lowercase.encode(), "u1")[symbols].tobytes()
            digest.update(text)
            path = scratch / f"{split}.txt"
            path.write_bytes(text)
            texts[split] = TextPart(path)
        assert digest.hexdigest() == SHA256, "numpy no longer draws the same bits"
        return texts
