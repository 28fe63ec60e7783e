"""The result table for people: one column a question, one row a line of the experiment.

A table as Markdown, LaTeX and plain text.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from txlbench.config.base import shown
from txlbench.records.schema import Outcome
from txlbench.reporting.experiment_results import Results
from txlbench.reporting.provenance import Provenance, comparison_reference, how_obtained, notes
from txlbench.reporting.rows import Estimate, Row, best_loss, build_rows, init_loss, units

EMPTY = ""


@dataclass(frozen=True)
class Column:
    """A header and a cell for each row; numbers are set flush right."""

    header: str
    cells: tuple[str, ...]
    is_number: bool = False

    @property
    def is_empty(self) -> bool:
        return not any(self.cells)


@dataclass(frozen=True)
class Table:
    """Columns of equal length, and lines below them.

    Attributes:
        footer: how the numbers were obtained, and warnings.
        source: runs, commit and command.
    """

    columns: tuple[Column, ...]
    footer: tuple[str, ...]
    source: str

    @property
    def header(self) -> list[str]:
        return [column.header for column in self.columns]

    @property
    def rows(self) -> list[list[str]]:
        return [list(cells) for cells in zip(*(c.cells for c in self.columns), strict=True)]


def build_table(results: Results, provenance: Provenance) -> Table:
    """The whole table in its human form; columns that are empty in every row are left out."""
    rows = build_rows(results)
    reference = comparison_reference(rows)
    columns = [
        *_configuration(rows),
        *(column for unit in units(rows) for column in _results(rows, unit)),
        _column("attention length", rows, _attention_length, is_number=True),
        *_paper(rows),
        _column("state", rows, lambda row: row.state),
        _column("notes", rows, lambda row: "; ".join(notes(row, reference))),
    ]
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, (*how_obtained(rows), *results.experiment.warnings), provenance.full)


def for_terminal(table: Table, source: str) -> Table:
    """A narrower form: what is the same in every row, and notes, become lines below."""
    kept, same, below = [], [], []
    for column in table.columns:
        if column.header == "notes":
            below = _notes_below(table.columns[0].cells, column.cells)
        elif len(column.cells) > 1 and len(set(column.cells)) == 1:
            same.append(f"{column.header} {column.cells[0]}")
        else:
            kept.append(column)
    alike = [f"In every row: {', '.join(same)}."] if same else []
    return Table(tuple(kept), (*alike, *below, *table.footer), source)


def _notes_below(labels: Sequence[str], texts: Sequence[str]) -> list[str]:
    """A line for each note, led by the rows that it is about."""
    about: dict[str, list[str]] = {}
    for label, text in zip(labels, texts, strict=True):
        about.setdefault(text, []).append(label)
    return [
        f"{'All rows' if len(named) == len(labels) > 1 else ', '.join(named)}: {text}"
        for text, named in about.items()
        if text
    ]


def _column(
    header: str, rows: Sequence[Row], cell: Callable[[Row], str], is_number: bool = False
) -> Column:
    return Column(header, tuple(cell(row) for row in rows), is_number)


def _configuration(rows: Sequence[Row]) -> list[Column]:
    return [
        _column("row", rows, lambda row: row.label),
        _column("recurrence", rows, lambda row: _yes_no(row.first.config.train.recurrence)),
        _column("encoding", rows, lambda row: row.first.config.model.name),
        _column("loss", rows, lambda row: row.first.config.train.loss),
        _column("targets trained", rows, lambda row: compact(row.targets), is_number=True),
        _column("parameters", rows, lambda row: compact(row.parameters), is_number=True),
        _column("n", rows, lambda row: str(len(row.counted)), is_number=True),
    ]


def _results(rows: Sequence[Row], unit: str) -> list[Column]:
    """Init and best in one unit; rows of another unit stay empty there."""

    def number(loss: Callable[[Outcome], float], pick: Callable[[Row], Estimate | None]) -> Column:
        name = "init" if loss is init_loss else "best"
        return _column(f"{unit} {name}", rows, lambda row: _in_unit(row, unit, pick), True)

    def difference(loss: Callable[[Outcome], float]) -> Column:
        name = "init" if loss is init_loss else "best"
        return _column(f"Δ {unit} {name}", rows, lambda row: _difference(row, unit, loss), True)

    return [
        number(init_loss, lambda row: row.init),
        difference(init_loss),
        number(best_loss, lambda row: row.best),
        difference(best_loss),
    ]


def _in_unit(row: Row, unit: str, pick: Callable[[Row], Estimate | None]) -> str:
    """Mean and interval; in brackets where the model did not train, which is no result."""
    found = pick(row)
    if found is None or row.unit != unit:
        return EMPTY
    text = shown(found.mean, unit)
    if found.half_width is not None:
        text += f" ± {shown(found.half_width, unit)}"
    return text if row.did_train else f"({text})"


def _difference(row: Row, unit: str, loss: Callable[[Outcome], float]) -> str:
    found = row.difference(loss)
    if found is None or found.half_width is None or row.unit != unit:
        return EMPTY
    text = f"{shown(found.mean, unit, sign=True)} ± {shown(found.half_width, unit)}"
    return text if found.is_resolved else f"{text} (not resolved)"


def _attention_length(row: Row) -> str:
    found = row.attention_length
    if found is None:
        return EMPTY
    text = f"{found.mean:.0f}" if found.mean == round(found.mean) else f"{found.mean:.1f}"
    return f"{text} ± {found.half_width:.1f}" if found.half_width else text


def _paper(rows: Sequence[Row]) -> list[Column]:
    """The paper's numbers, in columns of their own and under the paper's own units."""
    names = dict.fromkeys(name for row in rows for name in row.line.paper)
    return [
        _column(
            f"paper: {name}",
            rows,
            lambda row, name=name: _as_given(row.line.paper.get(name, EMPTY)),  # type: ignore[misc]
            is_number=True,
        )
        for name in names
    ]


def _as_given(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.10g}"


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def compact(count: int | None) -> str:
    """A count to three digits: 1.02M."""
    if count is None:
        return EMPTY
    for size, suffix in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if count >= 0.9995 * size:  # what rounds up to the next suffix gets it
            return f"{count / size:.3g}{suffix}"
    return str(count)


LATEX_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "·": r"$\cdot$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def markdown(table: Table) -> str:
    """A pipe table, numbers flush right, the footer as a paragraph a line."""
    rule = ["---:" if column.is_number else "---" for column in table.columns]
    lines = [table.header, rule, *table.rows]
    body = "\n".join(f"| {' | '.join(map(_escape_markdown, cells))} |" for cells in lines)
    return "\n\n".join([body, *map(_escape_markdown, [*table.footer, table.source])]) + "\n"


def _escape_markdown(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("*", "\\*")


def latex(table: Table) -> str:
    """A `tabular` with booktabs rules to be \\input; the footer below it in small print."""
    alignment = "".join("r" if column.is_number else "l" for column in table.columns)
    return "\n".join(
        [
            "% needs \\usepackage{booktabs}",
            f"\\begin{{tabular}}{{{alignment}}}",
            "\\toprule",
            _latex_row(table.header),
            "\\midrule",
            *map(_latex_row, table.rows),
            "\\bottomrule",
            "\\end{tabular}",
            *(
                f"\n\\par{{\\footnotesize {escape_latex(line)}\\par}}"
                for line in [*table.footer, table.source]
            ),
            "",
        ]
    )


def _latex_row(cells: list[str]) -> str:
    return " & ".join(map(escape_latex, cells)) + r" \\"


def escape_latex(text: str) -> str:
    """`text` with every character that TeX would interpret made literal."""
    return "".join(LATEX_ESCAPES.get(character, character) for character in text)


def plain_text(table: Table) -> str:
    """Aligned columns with a rule below the header, then the footer."""
    columns = [_padded(column) for column in table.columns]
    lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
    return "\n".join([*lines, "", *table.footer, table.source]) + "\n"


def _padded(column: Column) -> list[str]:
    width = max(len(text) for text in (column.header, *column.cells))
    cells = [column.header, "-" * width, *column.cells]
    return [cell.rjust(width) if column.is_number else cell.ljust(width) for cell in cells]
