"""A table of text as Markdown, LaTeX and plain text that fits a terminal."""

import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

EMPTY = ""
GAP = "  "
SHORTEST_NAME = 20
"""Letters that a row's name keeps in the narrowest terminal."""
IN_EVERY_ROW = "In every row:"


@dataclass(frozen=True)
class Column:
    """A header and a cell for each row.

    Attributes:
        is_number: numbers are set flush right.
        rank: columns of the highest are left out first where a terminal is too narrow, those of
            rank 0 never.
    """

    header: str
    cells: tuple[str, ...]
    is_number: bool = False
    rank: int = 0

    @property
    def width(self) -> int:
        """Letters that it takes in plain text, its header on several lines."""
        return max(map(len, (*self.header.split(), *self.cells)))

    @property
    def is_empty(self) -> bool:
        return not any(self.cells)


@dataclass(frozen=True)
class Table:
    """Columns of equal length, and lines below them.

    Attributes:
        footer: how the numbers were obtained, and warnings.
        source: runs, commit and command.
        title: what LaTeX calls it.
    """

    columns: tuple[Column, ...]
    footer: tuple[str, ...]
    source: str
    title: str = "Results"

    @property
    def header(self) -> list[str]:
        return [column.header for column in self.columns]

    @property
    def rows(self) -> list[list[str]]:
        return [list(cells) for cells in zip(*(c.cells for c in self.columns), strict=True)]


def enumerated(names: Iterable[str]) -> str:
    """The names one after another, divided by semicolons where one of them has a comma itself."""
    found = list(names)
    return ("; " if any("," in name for name in found) else ", ").join(found)


def compact(count: int | None) -> str:
    """A count to three digits: 1.02M."""
    if count is None:
        return EMPTY
    for size, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:  # what rounds up to the next suffix gets it
            return f"{count / size:.3g}{suffix}"
    return str(count)


def for_terminal(table: Table, source: str, width: int | None = None) -> Table:
    """The narrowed table, without the columns that do not fit `width` letters; names them.

    Args:
        width: of the terminal, unless given.
    """
    width = width or shutil.get_terminal_size().columns
    narrow = narrowed(table)
    kept, left_out = list(narrow.columns), []
    while _width(kept) > width and any(column.rank for column in kept):
        last = max(range(len(kept)), key=lambda index: (kept[index].rank, index))
        left_out.append(kept.pop(last).header)
    first = kept[0]
    room = max(SHORTEST_NAME, first.width - (_width(kept) - width))
    kept[0] = replace(first, cells=tuple(_cut(cell, room) for cell in first.cells))
    more = (f"Left out in a width of {width}: {', '.join(reversed(left_out))}.",) * bool(left_out)
    return replace(narrow, columns=tuple(kept), footer=(*more, *narrow.footer), source=source)


def _width(columns: Sequence[Column]) -> int:
    """Letters in a line of text."""
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


def _cut(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    head = room // 2
    return f"{text[:head]}…{text[len(text) - (room - head - 1) :]}"


def narrowed(table: Table) -> Table:
    """Without notes and what is the same in every row, which become lines below."""
    kept, same, below = [], [], []
    for column in table.columns:
        if column.header == "notes":
            below = _notes_below(table.columns[0].cells, column.cells)
        elif len(column.cells) > 1 and len(set(column.cells)) == 1:
            same.append(f"{column.header} {column.cells[0]}")
        else:
            kept.append(column)
    alike = [f"{IN_EVERY_ROW} {', '.join(same)}."] if same else []
    return replace(table, columns=tuple(kept), footer=(*alike, *below, *table.footer))


def _notes_below(labels: Sequence[str], texts: Sequence[str]) -> list[str]:
    """A line for each note, led by the rows that it is about."""
    about: dict[str, list[str]] = {}
    for label, text in zip(labels, texts, strict=True):
        about.setdefault(text, []).append(label)
    return [
        f"{'All rows' if len(named) == len(labels) > 1 else enumerated(named)}: {text}"
        for text, named in about.items()
        if text
    ]


LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "·": r"$\cdot$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "\u2212": "$-$",
    "\u00d7": r"$\times$",
    "…": r"\ldots{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
LAST_LATIN = "\u017f"
"""pdfTeX sets the letters up to this one; the others need XeTeX or LuaTeX and a font of theirs."""
LATEX_HEAD = r"""% needs \usepackage{booktabs,graphicx}
\providecommand{\nonlatin}[2]{\ifx\Umathchar\undefined #2\else #1\fi}
\begin{table}
\centering"""
LATEX_FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"


def markdown(table: Table) -> str:
    """A pipe table, numbers flush right, the footer as a paragraph a line."""
    rule = ["---:" if column.is_number else "---" for column in table.columns]
    lines = [map(_escape_markdown, table.header), rule]
    lines += [map(_escape_markdown, cells) for cells in table.rows]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return "\n\n".join([body, *map(_escape_markdown, [*table.footer, table.source])]) + "\n"


def _escape_markdown(text: str) -> str:
    """`text` as it stands: no tags, links, code, emphasis or ends of a cell."""
    literal = re.sub(r"[\\|*`[\]]|(?<!\w)_|_(?!\w)", r"\\\g<0>", " ".join(text.split()))
    return literal.replace("&", "&amp;").replace("<", "&lt;")


def latex(table: Table) -> str:
    """A `table` to be \\input: booktabs rules, caption and label, no wider than the text.

    What is the same in every row stands in the caption, notes below the table in small print, the
    source in a comment.
    """
    narrow = narrowed(table)
    alignment = "".join("r" if column.is_number else "l" for column in narrow.columns)
    same = [line for line in narrow.footer if line.startswith(IN_EVERY_ROW)]
    below = [line for line in narrow.footer if line not in same]
    return "\n".join(
        [
            f"% {' '.join(table.source.split())}",
            LATEX_HEAD,
            f"\\caption{{{escape_latex(' '.join([f'{table.title}.', *same]))}}}",
            f"\\label{{tab:{re.sub('[^a-z0-9]+', '-', table.title.lower()).strip('-')}}}",
            LATEX_FIT,
            f"\\begin{{tabular}}{{{alignment}}}",
            "\\toprule",
            _latex_row(narrow.header),
            "\\midrule",
            *map(_latex_row, narrow.rows),
            "\\bottomrule",
            "\\end{tabular}}",
            *(f"\n\\par{{\\footnotesize {escape_latex(line)}\\par}}" for line in below),
            "\\end{table}",
            "",
        ]
    )


def _latex_row(cells: list[str]) -> str:
    return " & ".join(map(escape_latex, cells)) + r" \\"


def escape_latex(text: str) -> str:
    """`text` with every character that TeX would interpret made literal, and minus signs."""
    parts = re.split(r"(?<![\w-])-(?=\d)", text)
    return "$-$".join("".join(map(_latex_letter, part)) for part in parts)


def _latex_letter(letter: str) -> str:
    if letter in LATEX_ESCAPES:
        return LATEX_ESCAPES[letter]
    return letter if letter <= LAST_LATIN else f"\\nonlatin{{{letter}}}{{U+{ord(letter):04X}}}"


def plain_text(table: Table) -> str:
    """Aligned columns with a rule below the header, then the footer."""
    headers = [textwrap.wrap(column.header, column.width) for column in table.columns]
    height = max(map(len, headers))
    columns = [
        _aligned(
            [*[""] * (height - len(header)), *header, "-" * column.width, *column.cells], column
        )
        for header, column in zip(headers, table.columns, strict=True)
    ]
    lines = [GAP.join(cells).rstrip() for cells in zip(*columns, strict=True)]
    return "\n".join([*lines, "", *table.footer, table.source]) + "\n"


def _aligned(cells: Sequence[str], column: Column) -> list[str]:
    width = column.width
    return [cell.rjust(width) if column.is_number else cell.ljust(width) for cell in cells]
