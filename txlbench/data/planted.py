"""`planted`: a made corpus whose best loss, and so its RECL, is known at every context."""

import hashlib
import string
from collections.abc import Mapping
from pathlib import Path

from txlbench.config.catalogue import CORPORA
from txlbench.config.section import Split
from txlbench.data.planted_process import PlantedProcess
from txlbench.data.source import Source
from txlbench.data.text import Text
from txlbench.errors import UserError

PROCESS = PlantedProcess()
SEEDS: Mapping[Split, int] = {"train": 1, "valid": 2, "test": 3}
SHA256 = "0e057cdf8023f8c45e28755197f6d7195bcd2f7eea92a1e23269f5f3f9736a67"
"""Of the texts of train, valid and test, one after the other."""


class Planted(Source):
    """One letter a symbol; each split is a sequence of its own that begins with stream 0."""

    name = "planted"
    level = CORPORA[name].level
    split_rule = CORPORA[name].split_rule

    def __init__(self, from_file: Path | None = None) -> None:
        if from_file is not None:
            raise UserError(f"--from-file {from_file}: {self.name} is computed", "drop the option")

    def checksum(self) -> str:
        return SHA256

    def texts(self, scratch: Path) -> Mapping[Split, Text]:
        digest = hashlib.sha256()
        texts: dict[Split, Text] = {}
        for split, seed in SEEDS.items():
            text = letters(CORPORA[self.name].tokens[split] or 0, seed)
            digest.update(text)
            path = scratch / f"{split}.txt"
            path.write_bytes(text)
            texts[split] = Text(path)
        assert digest.hexdigest() == SHA256, "numpy no longer draws the same bits"
        return texts


def letters(length: int, seed: int) -> bytes:
    """The text of a sequence of the process."""
    table = bytes.maketrans(bytes(range(52)), string.ascii_letters.encode())
    return PROCESS.sequence(length, seed).astype("u1").tobytes().translate(table)
