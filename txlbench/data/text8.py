"""`text8`: Wikipedia in the letters a to z and the space."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from txlbench.config.catalogue import CORPORA
from txlbench.data.hundred_million import HundredMillion, mahoney
from txlbench.data.splits import SPLITS
from txlbench.data.text import Text

EDGE = 1 << 10
"""More bytes than there are spaces at the edge of a split."""


class Text8(HundredMillion):
    """As the official preparation: spaces at the edges of a split are dropped.

    The vocabulary is what occurs in all three splits, 27 symbols. The official `_` is a space here.
    """

    name = "text8"
    level = CORPORA[name].level
    split_rule = CORPORA[name].split_rule
    counted = SPLITS
    archive = mahoney(
        "text8.zip", "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232"
    )
    members: ClassVar[Mapping[str, str]] = {"text8": "text8"}
    text_sha256 = "6e890197040d37d85beb962ae1f041ff1d9a9ca8d20c7d99c85027eebf51dca7"

    def part(self, path: Path, start: int, stop: int) -> Text:
        with path.open("rb") as file:
            file.seek(start)
            head = file.read(min(EDGE, stop - start))
            file.seek(max(start, stop - EDGE))
            tail = file.read(stop - file.tell())
        before, after = len(head) - len(head.lstrip()), len(tail) - len(tail.rstrip())
        return Text(path, start + before, stop - after)
