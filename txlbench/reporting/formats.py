"""A table as Markdown, LaTeX and plain text."""

from txlbench.reporting.table import Column, Table

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
