"""Source texts, read in pieces of bounded size at byte, character or word level, and cut in three.

What the levels do with the irregularities of real files:

- Bytes are taken as they are, whatever their encoding and line ends.
- Characters and words need UTF-8; other bytes are an error that names file and byte offset. CRLF
  counts as LF, a byte order mark at the start is dropped, a lone CR stays a character.
- Words are what stands between whitespace. Every line ends in `<eos>`, a blank line and a last
  line without its newline too. Only LF (or CRLF) ends a line.
- Characters get no final newline that the file does not have.

One text is cut into train, valid and test at 90 and 95 percent of its bytes, characters or lines,
by level, or of its words where lines would leave a split empty.
"""

import codecs
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from txlbench.config.base import Split
from txlbench.config.catalogue import Level
from txlbench.errors import UserError

CHUNK = 1 << 18
"""Bytes read at once."""


@dataclass(frozen=True)
class TextPart:
    """A file, or the part [start, stop) of it.

    Attributes:
        path: the file.
        start, stop: in bytes at byte level, else in characters after normalisation; `stop` None
            for the end of the file.
    """

    path: Path
    start: int = 0
    stop: int | None = None

    def pieces(self, level: Level) -> Iterator[str]:
        """Yields the text in pieces that tear no symbol apart.

        At byte level each character of a piece, U+0000 to U+00FF, stands for one byte. At word
        level each piece ends between words, and the text ends in a newline.

        Raises:
            UserError: at character and word level, for bytes that are not UTF-8.
        """
        if level == "byte":
            return self._clipped(chunk.decode("latin-1") for chunk in chunks(self.path))
        characters = self._clipped(normalised(self.path))
        return characters if level == "char" else _between_words(characters)

    def _clipped(self, pieces: Iterable[str]) -> Iterator[str]:
        position = 0
        for piece in pieces:
            if self.stop is not None and position >= self.stop:
                return
            end = None if self.stop is None else self.stop - position
            clipped = piece[max(0, self.start - position) : end]
            position += len(piece)
            if clipped:
                yield clipped


def normalised(path: Path) -> Iterator[str]:
    """Yields the characters of the UTF-8 file at `path` with CRLF as LF, in chunks."""
    held = ""  # A CR at the end of a chunk waits for its LF.
    at_start = True
    for characters in filter(None, _decoded(path)):
        piece = held + (characters.removeprefix("\ufeff") if at_start else characters)
        at_start = False
        held = "\r" if piece.endswith("\r") else ""
        yield piece[: len(piece) - len(held)].replace("\r\n", "\n")
    if held:
        yield held


def _decoded(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    position = 0
    for chunk in itertools.chain(chunks(path), [b""]):
        pending = len(decoder.getstate()[0])
        try:
            yield decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            offset = position - pending + error.start
            raise UserError(
                f"{path}: byte {offset}: 0x{error.object[error.start]:02x} is not UTF-8",
                "save the file as UTF-8, or use level byte",
            ) from error
        position += len(chunk)


def chunks(path: Path) -> Iterator[bytes]:
    """Yields the bytes of the file at `path`."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _between_words(pieces: Iterable[str]) -> Iterator[str]:
    """Yields the same characters cut at whitespace, with a newline after the last line."""
    rest, last = "", "\n"
    for piece in pieces:
        joined = rest + piece
        cut = max(joined.rfind(" "), joined.rfind("\n")) + 1
        if cut:
            yield joined[:cut]
        rest, last = joined[cut:], piece[-1]
    if last != "\n":
        yield rest + "\n"


SPLITS: tuple[Split, ...] = get_args(Split)


def cut(path: Path, level: Level) -> Mapping[Split, TextPart]:
    """Cuts the file at `path` into its splits; UserError for what is not UTF-8, as in `pieces`."""
    boundaries = {"byte": _in_bytes, "char": _in_characters, "word": _in_lines_or_words}[level](
        path
    )
    starts, stops = (0, *boundaries), (*boundaries, None)
    return {
        split: TextPart(path, start, stop)
        for split, start, stop in zip(SPLITS, starts, stops, strict=True)
    }


def _shares(units: int) -> tuple[int, int]:
    return units * 90 // 100, units * 95 // 100


def _in_bytes(path: Path) -> tuple[int, int]:
    return _shares(path.stat().st_size)


def _in_characters(path: Path) -> tuple[int, int]:
    return _shares(sum(map(len, normalised(path))))


def _in_lines_or_words(path: Path) -> tuple[int, int]:
    """Character offsets between lines, or between words where that would leave a split empty."""
    for unit in (LINE, WORD):
        numbers = _shares(sum(1 for _ in _starts(path, unit)))
        first, second = (_offset(path, unit, number) for number in numbers)
        if 0 < first < second:
            break
    return first, second


LINE, WORD = re.compile(r"[^\n]*\n|[^\n]+"), re.compile(r"\S+")


def _starts(path: Path, unit: re.Pattern[str]) -> Iterator[int]:
    """Yields the offset in characters at which each line or word begins."""
    position, inside = 0, False
    for piece in filter(None, normalised(path)):
        for match in unit.finditer(piece):
            if not (inside and match.start() == 0):
                yield position + match.start()
        inside = (unit is LINE and piece[-1] != "\n") or (unit is WORD and not piece[-1].isspace())
        position += len(piece)


def _offset(path: Path, unit: re.Pattern[str], number: int) -> int:
    return next(itertools.islice(_starts(path, unit), number, None), 0)


JOINED = re.compile(r" ?@([-,.])@ ?")
"""WikiText's hyphen, thousands separator and decimal point."""
BEFORE = re.compile(r" +([,.;:!?%)\]}\u2019\u201d]|'(?:s|S|m|d|ll|re|ve|t)\b|n't\b)")
"""What follows a word without a space."""
AFTER = re.compile(r"([(\[{$\u00a3\u20ac\u2018\u201c]) +")
"""What a word follows without a space."""
BACKTICKS = re.compile(r" ?`` ?(.*?) ?''", re.DOTALL)
QUOTES = re.compile(r'" (.*?) "', re.DOTALL)
"""A pair of straight quotes, which lm1b and WikiText surround with spaces."""
HEADING = re.compile(r"^ *((?:= )+)(.*?)((?: =)+) *$", re.MULTILINE)
"""WikiText's = Title =, == or = = Section = =."""
SENTENCES = re.compile(r"<S>\s*")


def detokenized(text: str) -> str:
    """The text of a word corpus as people would write it, for display.

    For WikiText, PTB and lm1b, where punctuation and parts of contractions are words of their own.
    What cannot be known, such as capitals, stays.
    """
    text = SENTENCES.sub("", text)
    text = HEADING.sub(_heading, text)
    text = JOINED.sub(r"\1", text)
    text = BACKTICKS.sub(r' "\1"', text)
    text = QUOTES.sub(r'"\1"', text)
    text = AFTER.sub(r"\1", BEFORE.sub(r"\1", text))
    return re.sub(r"[ \t]+(?=\n|$)|(?<=\n)[ \t]+|^[ \t]+", "", text)


def _heading(found: re.Match[str]) -> str:
    marks = "=" * found[1].count("=")
    return f"{marks} {found[2]} {marks}"
