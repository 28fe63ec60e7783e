"""Reading a dump of Wikipedia: the articles in it, one after the other."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NAMESPACE = "{http://www.mediawiki.org/xml/export-0.10/}"
"""Of every element of the dump's format."""


@dataclass(frozen=True)
class Article:
    """A page of the encyclopedia itself, with its text in wiki markup."""

    title: str
    markup: str


def articles(path: Path) -> Iterator[Article]:
    """The articles of the XML dump at `path`, in order, without redirects and other pages."""
    for _, page in ElementTree.iterparse(path):
        if page.tag != f"{NAMESPACE}page":
            continue
        is_article = page.findtext(f"{NAMESPACE}ns") == "0"
        if is_article and page.find(f"{NAMESPACE}redirect") is None:
            text = page.findtext(f"{NAMESPACE}revision/{NAMESPACE}text")
            yield Article(page.findtext(f"{NAMESPACE}title") or "", text or "")
        page.clear()
