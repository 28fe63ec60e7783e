"""Markdown, LaTeX and plain text of one table."""

import re
from dataclasses import replace

import pytest

from txlbench.reporting.table import (
    Column,
    Table,
    enumerated,
    escape_latex,
    latex,
    markdown,
    plain_text,
)

TABLE = Table(
    (Column("row", ("a|b", "50 % of x_1")), Column("Δ bpc", ("1.0 ± 0.1", ""), is_number=True)),
    ("how it was done",),
    "whence",
)


def test_markdown_keeps_its_columns() -> None:
    lines = markdown(TABLE).split("\n")
    assert lines[:3] == ["| row | Δ bpc |", "| --- | ---: |", "| a\\|b | 1.0 ± 0.1 |"]
    assert lines[-4:] == ["how it was done", "", "whence", ""]


def test_markdown_shows_labels_as_they_are() -> None:
    table = Table((Column("row", ("<half> & `x` [y](z) *a* _b_ tgt_len",)),), (), "")
    line = markdown(table).split("\n")[2]
    assert line == r"| &lt;half> &amp; \`x\` \[y\](z) \*a\* \_b\_ tgt_len |"


def test_latex_is_literal_with_caption_label_and_rules() -> None:
    text = latex(replace(TABLE, title="Mine: 50 % of it"))
    assert "\\begin{tabular}{lr}" in text
    assert r"a|b & 1.0 $\pm$ 0.1 \\" in text
    assert r"50 \% of x\_1 &  \\" in text
    assert text.startswith("% whence\n")
    assert r"\caption{Mine: 50 \% of it.}" in text
    assert r"\label{tab:mine-50-of-it}" in text
    assert [text.count(f"\\{rule}rule") for rule in ("top", "mid", "bottom")] == [1, 1, 1]
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


def test_latex_has_columns_that_vary_and_notes_below() -> None:
    columns = (
        Column("row", ("a", "b")),
        Column("n", ("3", "3"), is_number=True),
        Column("loss", ("-1.5", "2"), is_number=True),
        Column("notes", ("odd", "")),
    )
    text = latex(Table(columns, (), "source", title="T"))
    assert r"row & loss \\" in text
    assert r"a & $-$1.5 \\" in text
    assert r"\caption{T. In every row: n 3.}" in text
    assert r"\footnotesize a: odd" in text


def test_latex_has_no_letter_that_pdftex_lacks() -> None:
    text = latex(Table((Column("row", ("\u65e5 \u00e9 \u2212 x-1 lr=-1",)),), ("\u2264",), "s"))
    assert "\\nonlatin{\u65e5}{U+65E5} \u00e9 $-$ x-1 lr=$-$1" in text
    bare = re.sub(r"\\nonlatin\{.\}", "", text)
    assert all(letter <= "\u017f" for letter in bare)


@pytest.mark.parametrize("character", "&%$#_{}~^\\<>")
def test_every_special_character_is_escaped(character: str) -> None:
    assert escape_latex(character).startswith("\\")


def test_plain_text_is_aligned() -> None:
    lines = plain_text(TABLE).split("\n")
    assert lines[1] == "-----------  ---------"
    assert lines[2] == "a|b          1.0 ± 0.1"


@pytest.mark.parametrize(
    ("names", "text"), [(["XL", "RoPE"], "XL, RoPE"), (["XL, memory", "XL"], "XL, memory; XL")]
)
def test_names_with_commas_are_divided_otherwise(names, text):
    assert enumerated(names) == text
