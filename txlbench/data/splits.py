"""Cutting one text into train, valid and test: 90, 5 and 5 percent of its units, in order.

The units are bytes, characters or lines, by level, so that no character and no line is torn.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from txlbench.config.catalogue import Level
from txlbench.config.section import Split
from txlbench.data.text import Text, normalised

SPLITS: tuple[Split, ...] = get_args(Split)


def cut(path: Path, level: Level) -> Mapping[Split, Text]:
    """The three parts of the file at `path`; UserError for what is not UTF-8, as in `Text`."""
    boundaries = {"byte": _in_bytes, "char": _in_characters, "word": _in_lines}[level](path)
    starts, stops = (0, *boundaries), (*boundaries, None)
    return {
        split: Text(path, start, stop)
        for split, start, stop in zip(SPLITS, starts, stops, strict=True)
    }


def _shares(units: int) -> tuple[int, int]:
    return units * 90 // 100, units * 95 // 100


def _in_bytes(path: Path) -> tuple[int, int]:
    return _shares(path.stat().st_size)


def _in_characters(path: Path) -> tuple[int, int]:
    return _shares(sum(map(len, normalised(path))))


def _in_lines(path: Path) -> tuple[int, int]:
    lines, last = 0, "\n"
    for piece in filter(None, normalised(path)):
        lines += piece.count("\n")
        last = piece[-1]
    first, second = _shares(lines + (last != "\n"))
    return _line_start(path, first), _line_start(path, second)


def _line_start(path: Path, line: int) -> int:
    """The offset in characters at which line number `line`, from 0, begins."""
    position = 0
    for piece in normalised(path):
        newlines = piece.count("\n")
        if newlines >= line:
            return position + _after_newlines(piece, line)
        line -= newlines
        position += len(piece)
    return position


def _after_newlines(piece: str, count: int) -> int:
    """The offset in `piece` just behind its newline number `count`; 0 for none."""
    offset = 0
    for _ in range(count):
        offset = piece.index("\n", offset) + 1
    return offset
