"""Markdown, LaTeX and plain text of one table."""

import pytest

from txlbench.reporting.formats import escape_latex, latex, markdown, plain_text
from txlbench.reporting.table import Column, Table

TABLE = Table(
    (Column("row", ("a|b", "50 % of x_1")), Column("Δ bpc", ("1.0 ± 0.1", ""), is_number=True)),
    ("how it was done",),
    "whence",
)


def test_markdown_keeps_its_columns() -> None:
    lines = markdown(TABLE).split("\n")
    assert lines[:3] == ["| row | Δ bpc |", "| --- | ---: |", "| a\\|b | 1.0 ± 0.1 |"]
    assert lines[-4:] == ["how it was done", "", "whence", ""]


def test_latex_is_literal() -> None:
    text = latex(TABLE)
    assert "\\begin{tabular}{lr}" in text
    assert r"a|b & 1.0 $\pm$ 0.1 \\" in text
    assert r"50 \% of x\_1 &  \\" in text
    assert "whence" in text


@pytest.mark.parametrize("character", "&%$#_{}~^\\<>")
def test_every_special_character_is_escaped(character: str) -> None:
    assert escape_latex(character).startswith("\\")


def test_plain_text_is_aligned() -> None:
    lines = plain_text(TABLE).split("\n")
    assert lines[1] == "-----------  ---------"
    assert lines[2] == "a|b          1.0 ± 0.1"
