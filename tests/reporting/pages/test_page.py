"""Pages: they need nothing outside themselves, escape every text, and say what sorts a cell."""

import re
from functools import partial

import numpy as np
import pytest

from tests.reporting.pages.parsed import Parsed
from txlbench.reporting.figures.style import Drawing, new_figure
from txlbench.reporting.pages.page import (
    Answer,
    Log,
    Page,
    PagePart,
    Remark,
    Span,
    render,
    sort_key,
    tables_of,
)
from txlbench.reporting.pages.pictures import LARGEST_SVG, picture
from txlbench.reporting.table import Column, Table

EVIL = "<script>alert('1')</script>\"&-->"


class Source:
    short = full = EVIL


def draw(lines=1):
    figure = new_figure(2)
    random = np.random.default_rng(1)
    for line in random.random((lines, 100)):
        figure.axes[0].plot(line, label=EVIL)
    figure.axes[0].set_title(EVIL)
    return Drawing(figure, EVIL, EVIL)


def table(*cells, is_number=True, title="A table"):
    columns = (Column("row", tuple(map(str, range(len(cells))))), Column("x", cells, is_number))
    return Table(columns, (EVIL,), EVIL, title)


def page(*parts):
    shown = picture("one", draw, Source())
    return Page(EVIL, EVIL, EVIL, (Answer((Remark(EVIL, (EVIL,)),), EVIL),), parts, EVIL, shown)


def full():
    return page(
        PagePart("Table", (EVIL,), tables=(table("1", EVIL), table("2"))),
        PagePart("Table", pictures=(picture("two", draw, Source(), EVIL),)),
        PagePart("Nothing"),
        PagePart(EVIL, logs=(Log(EVIL, EVIL, EVIL),), text=(Span(EVIL, EVIL, "1, 2, 3", 0.5),)),
    )


def test_every_text_is_escaped_and_every_tag_closed():
    text = render(full())
    assert text.count("<script") == 1, "its own"
    parsed = Parsed(text)
    assert parsed.text.count(EVIL) > 14
    assert parsed.names["description"] == f"{EVIL}: {EVIL}"


def test_nothing_outside_it_is_asked_for():
    parsed = Parsed(render(full()))
    inside = {f"#{each}" for each in parsed.ids}
    assert {each for each in parsed.addresses if not each.startswith("data:")} <= inside
    assert "default-src 'none'" in render(full())


def test_ids_occur_once_and_sections_are_linked():
    parsed = Parsed(render(full()))
    assert len(parsed.ids) == len(set(parsed.ids)) > 20
    assert {"#table", "#table-2", "#script-alert-1-script", "#source"} <= set(parsed.addresses)
    assert "nothing" not in parsed.ids


def test_a_figure_of_many_lines_is_a_picture_of_fixed_size():
    small = picture("a", draw, Source())
    large = picture("a", partial(draw, 200), Source())
    assert small.svg.startswith("<svg viewBox=")
    assert large.svg.startswith('<img alt="&lt;script')
    assert len(large.svg) < LARGEST_SVG
    assert picture("a", lambda: None, Source()) is None


@pytest.mark.parametrize(
    ("cell", "key"),
    [
        ("2.860 ± 0.010", 2.86),
        ("(3.5)", 3.5),
        ("≥1,024 [900, 1,024]", 1024),
        ("1.02M", 1.02e6),
        ("513k", 513e3),
        ("-0.079 (not resolved)", -0.079),
        ("+1.2 %", 1.2),
        ("\u22122", -2),
        ("2e-05", 2e-5),
        ("12 MiB", 12),
    ],
)
def test_numbers_are_sorted_by_their_first(cell, key):
    assert float(sort_key(Column("x", (cell,), True), cell)) == pytest.approx(key)


def test_what_is_no_number_is_sorted_as_text_or_last():
    assert sort_key(Column("x", ("B",)), "B") == "b"
    assert sort_key(Column("x", ("", "1"), True), "") == ""


def test_empty_columns_and_tables_are_left_out():
    (kept,) = tables_of(table(), table("", ""))
    assert kept.header == ["row"]
    assert re.search("<h3>", render(page(PagePart("One", tables=(table("1"),))))) is None
