"""Wiki markup to headings and paragraphs of plain text: what a reader of the article reads.

Left out are references, tables, boxes, files, categories, addresses and comments, items of lists
that are no sentences, and sections that hold nothing else. A formula becomes `<formula>`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from txlbench.data.wiki_templates import meaning

FORMULA = "<formula>"
FORMULA_TAGS = frozenset({"ce", "chem", "math"})
DROPPED_TAGS = frozenset(
    {"categorytree", "gallery", "graph", "hiero", "imagemap", "inputbox", "mapframe", "pre"}
    | {"ref", "references", "score", "source", "syntaxhighlight", "table", "templatestyles"}
    | {"timeline"}
)
BREAKS = frozenset({"blockquote", "br", "center", "div", "hr", "ol", "p", "poem", "ul"})
ITEMS = frozenset({"dd", "dt", "li"})
BULLET = "\x00"
"""Begins a line that is an item of a list or indented; XML cannot contain this character."""

DROPPED_SECTIONS = re.compile(
    "bibliography|citations|discography|external links|filmography|footnotes|further reading|"
    "gallery|literature|(references and )?notes|(notes and )?references|publications|"
    "related topics|see also|(selected )?(bibliography|works)|sources|works cited",
    re.IGNORECASE,
)
ELSEWHERE = re.compile(r"\s*(?:(?:category|file|image|media)\s*:|[a-z-]{2,}\s*:\S)", re.IGNORECASE)
"""A link into another namespace, language or project, such as `File:` or `de:`."""

DEBRIS = re.compile(r"(?:https?://|www\.)\S+|^thumb\|.*$", re.MULTILINE)
"""Addresses, and captions of pictures whose brackets are broken."""

STYLE = re.compile("'{2,5}")
PARAGRAPH = re.compile(r"(?:\S+\s+){3,}.*[.!?](?:.*(?:[:;,\"')\]]|<formula>))?", re.DOTALL)
"""A text that holds a sentence; `The parts are:` alone, whose list is left out, does not."""

ITEM = re.compile(r"(?:\S+\s+){6,}.*[.!?][\"')\]]?", re.DOTALL)
"""An item of a list that is a sentence."""


@dataclass(frozen=True)
class Passage:
    """A heading, whose level is the number of its equals signs, or a paragraph, of level 0."""

    text: str
    level: int = 0


def passages(markup: str) -> Iterator[Passage]:
    """The passages of an article, without sections that are dropped or stay empty."""
    from mwparserfromhell import parse

    headings: list[Passage] = []  # Those that still wait for a paragraph.
    dropped = 0  # The level of the section that is left out, 0 for none.
    for passage in _all_passages(parse(markup, skip_style_tags=True)):
        if passage.level == 0 and not dropped:
            yield from headings
            yield passage
            headings = []
        elif passage.level and (not dropped or passage.level <= dropped):
            dropped = passage.level if DROPPED_SECTIONS.fullmatch(passage.text) else 0
            headings = [heading for heading in headings if heading.level < passage.level]
            headings += [] if dropped else [passage]


def _all_passages(code: Any) -> Iterator[Passage]:
    from mwparserfromhell.nodes import Heading

    body: list[str] = []
    for node in code.nodes:
        if isinstance(node, Heading):
            yield from _paragraphs("".join(body))
            yield Passage(_one_line(_plain(node.title)), node.level)
            body = []
        else:
            body.append(_plain_node(node))
    yield from _paragraphs("".join(body))


def _paragraphs(body: str) -> Iterator[Passage]:
    """The text between two headings: a blank line parts paragraphs, a bullet begins one line."""
    apart = re.sub(rf"^({BULLET}.*)$", r"\n\1\n", body, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", apart):
        text = _one_line(DEBRIS.sub("", paragraph))
        pattern = ITEM if BULLET in text else PARAGRAPH
        text = text.replace(BULLET, "").strip()
        if pattern.fullmatch(text):
            yield Passage(text)


def _one_line(text: str) -> str:
    return " ".join(STYLE.sub("", text).split())


def _plain(code: Any) -> str:
    """The text of parsed markup, with its line breaks and style marks."""
    return "".join(map(_plain_node, code.nodes))


def _plain_node(node: Any) -> str:
    from mwparserfromhell import nodes

    match node:
        case nodes.Text():
            return str(node.value)
        case nodes.Wikilink():
            return _link(node)
        case nodes.Tag():
            return _tag(node)
        case nodes.Template():
            return _template(node)
        case nodes.ExternalLink():
            return _plain(node.title) if node.title else ""
        case nodes.HTMLEntity():
            return str(node.normalize())
        case _:
            return ""


def _link(node: Any) -> str:
    title = str(node.title)
    if ELSEWHERE.match(title):
        return ""
    return title.lstrip(": ") if node.text is None else _plain(node.text)


def _template(node: Any) -> str:
    made = meaning(str(node.name))
    if made is None:
        return ""
    return made([_plain(part.value).strip() for part in node.params if not part.showkey])


def _tag(node: Any) -> str:
    name = str(node.tag).lower()
    if name in FORMULA_TAGS:
        return f" {FORMULA} "
    if name in DROPPED_TAGS:
        return ""
    if node.wiki_markup and name in ITEMS:
        return BULLET
    text = "" if node.contents is None else _plain(node.contents)
    return f"\n\n{text}\n\n" if name in BREAKS else text
