"""Pages of results: what they hold, and one template that makes each a file that needs no other.

A page answers first, in words with numbers; figures, tables and provenance follow.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from txlbench.reporting.table import Column, Table

GENERATOR = "txlbench"
"""What a page says it was made by; only such a file is replaced by another page."""
FIRST_NUMBER = re.compile(r"[-\u2212+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
SIZES = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True)
class Remark:
    """One thing that is answered: its name, and sentences with numbers."""

    name: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """The remarks about one model, or about all where `about` is empty."""

    remarks: tuple[Remark, ...]
    about: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure of a page.

    Attributes:
        note: what it leaves out.
        svg: an element that stands on its own, safe to be inserted as it is.
    """

    title: str
    subtitle: str
    note: str
    svg: Markup


@dataclass(frozen=True)
class Span:
    """A piece of text on a ground of `colour` ("red, green, blue"), as strong as `depth`."""

    text: str
    about: str
    colour: str
    depth: float


@dataclass(frozen=True)
class Log:
    """The last lines that a run wrote."""

    title: str
    about: str
    text: str


@dataclass(frozen=True)
class SideText:
    """A text that is read beside others; `about` is what is said of it."""

    title: str
    about: str
    text: str


@dataclass(frozen=True)
class PagePart:
    """A part of a page with a heading of its own; what is empty is not shown.

    Attributes:
        answers: in words, before everything else.
        notes: sentences below everything else.
        text: of which each span is coloured.
        passages: texts side by side.
    """

    title: str
    notes: tuple[str, ...] = ()
    answers: tuple[Answer, ...] = ()
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    logs: tuple[Log, ...] = ()
    text: tuple[Span, ...] = ()
    passages: tuple[SideText, ...] = ()

    @property
    def is_empty(self) -> bool:
        parts = (self.answers, self.notes, self.pictures, self.tables, self.logs, self.text)
        return not any((*parts, self.passages))


@dataclass(frozen=True)
class Page:
    """A result as a person reads it.

    Attributes:
        title: of the window.
        heading: the question, or what was done.
        lead: what was measured, in a line.
        picture: beside the answers.
        source: runs or models, commit and command.
    """

    title: str
    heading: str
    lead: str
    answers: tuple[Answer, ...]
    parts: tuple[PagePart, ...]
    source: str
    picture: Picture | None = None

    @property
    def summary(self) -> str:
        """The first sentence of the answer and what it is about, for a list of results."""
        found = (
            f"{answer.about or remark.name}: {line}"
            for answer in self.answers
            for remark in answer.remarks
            for line in remark.sentences
        )
        return next(found, "")


def render(page: Page) -> str:
    """The page as HTML: no address outside it is asked for, every text is escaped."""
    parts = [part for part in page.parts if not part.is_empty]
    anchors = _anchors(part.title for part in parts)
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            parts=list(zip(anchors, parts, strict=True)),
            generator=GENERATOR,
        )
    )


def render_index(entries: Sequence[object], is_dated: bool) -> str:
    """A list of pages as HTML; each entry has link, label, kind, title, summary and written."""
    template = _environment().get_template("index.html")
    return template.render(entries=entries, is_dated=is_dated, generator=GENERATOR)


def _anchors(titles: Iterable[str]) -> list[str]:
    """A fragment for each title, unlike the others."""
    found: list[str] = []
    for title in titles:
        slug = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "part"
        taken = sum(each.rstrip("0123456789").rstrip("-") == slug for each in found)
        found.append(f"{slug}-{taken + 1}" if taken else slug)
    return found


def tables_of(*tables: Table) -> tuple[Table, ...]:
    """Those that have rows, without columns that are empty in all of them."""
    kept = []
    for table in tables:
        columns = tuple(column for column in table.columns if not column.is_empty)
        if table.rows:
            kept.append(Table(columns, table.footer, table.source, table.title))
    return tuple(kept)


def sort_key(column: Column, cell: str) -> str:
    """What a cell is sorted by: its first number where the column has numbers, else its text."""
    if not column.is_number:
        return cell.casefold()
    found = FIRST_NUMBER.search(cell)
    if found is None:
        return ""
    value = float(found[0].replace(",", "").replace("\u2212", "-"))
    return repr(value * SIZES.get(cell[found.end() : found.end() + 1], 1))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["sort_key"] = sort_key
    return environment
