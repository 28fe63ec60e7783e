"""The index of a folder of results: a line for each page, from what the pages say of themselves."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

from txlbench.errors import UserError
from txlbench.files import write_text
from txlbench.records.experiment_directory import FINDINGS, RESULTS, under_results
from txlbench.reporting.pages.page import GENERATOR, render_index

NAME = "index.html"
PAGES = ("report.html", *(f"{Path(name).stem}.html" for name in FINDINGS))
"""What pages are called in the folder of a result."""
DATED = "dated"
"""The name, in an index's head, of whether it tells when pages were written."""
HEAD_BYTES = 20_000
"""Characters of a page in which its head ends."""


@dataclass(frozen=True)
class IndexEntry:
    """A page as the index lists it.

    Attributes:
        link: relative to the index.
        kind: experiment, or the verb that measured it.
        written: when, in UTC.
    """

    link: str
    name: str
    kind: str
    title: str
    summary: str
    written: str

    @property
    def label(self) -> str:
        """The folder, and where the page is no experiment's, what was measured there."""
        return self.name if self.link.endswith(PAGES[0]) else f"{self.name}: {self.kind}"


class Head(HTMLParser):
    """The title and the named values of a page's head."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.values: dict[str, str] = {}
        self.title = ""
        self._in_title = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "meta" and found.get("name"):
            self.values[str(found["name"])] = found.get("content") or ""
        self._in_title = tag == "title"

    def handle_data(self, data: str) -> None:
        self.title += data if self._in_title else ""

    def handle_endtag(self, tag: str) -> None:
        self._in_title &= tag != "title"

    @property
    def is_own(self) -> bool:
        return self.values.get("generator") == GENERATOR


def read_head(path: Path) -> Head:
    """What the page at `path` says of itself."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return Head(file.read(HEAD_BYTES))


def entries(folder: Path) -> Iterator[IndexEntry]:
    """The pages of all results directly under `folder`, in order of name."""
    for path in sorted(folder.glob("*/*.html")):
        if path.name not in PAGES or not (head := read_head(path)).is_own:
            continue
        stamp = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        kind = "experiment" if path.name == PAGES[0] else path.stem
        name = path.parent.name
        link = f"{name}/{path.name}"
        summary = head.values.get("description", "")
        yield IndexEntry(link, name, kind, head.title, summary, f"{stamp:%Y-%m-%d %H:%M}")


def index_folders(directories: Sequence[Path]) -> list[Path]:
    """The folders that get an index: those given that hold results, and of a single result none.

    `results` is taken where none is given.
    """
    found = dict.fromkeys(map(under_results, directories or [RESULTS]))
    return [path for path in found if any(entries(path))]


def write_index(folder: Path, is_dated: bool | None = None) -> Path:
    """Writes the index of `folder`.

    Args:
        is_dated: whether it tells when pages were written, by default as the one that is there
            does; published ones do not, so that they come out the same again.

    Raises:
        UserError: if there is an index.html that some other program wrote.
    """
    path = folder / NAME
    head = read_head(path) if path.exists() else None
    if head is not None and not head.is_own:
        raise UserError(f"{path}: is not an index of results", "move it, or give another folder")
    if is_dated is None:
        is_dated = head is None or head.values.get(DATED) != "no"
    write_text(path, render_index(list(entries(folder)), is_dated))
    return path


def refresh_index(folder: Path) -> None:
    """Writes the index anew where there is one, or where results lie by default.

    No verb fails for it: a place that cannot be written, or a page that another call takes away
    meanwhile, leaves the index as it is until the next page.
    """
    path = folder / NAME
    with contextlib.suppress(OSError):
        is_known = path.exists() and read_head(path).is_own
        if is_known or (not path.exists() and folder.name == RESULTS.name):
            write_index(folder)
