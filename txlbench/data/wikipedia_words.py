"""Plain text to the words of WikiText: punctuation apart, `@-@` where a mark joined two words.

So `well-known`, `1,000` and `3.5` become `well @-@ known`, `1 @,@ 000` and `3 @.@ 5`, from which
the text can be had again. The rules are those that the WikiText corpora show (Merity et al. 2017),
written anew; the tokeniser of their makers is not used.

Reading a dump of Wikipedia: the articles in it, one after the other.

The templates of Wikipedia that stand for words in a sentence, as the words they stand for.

All other templates (citations, boxes, notices, pronunciations) mean nothing in running text.

Wiki markup to headings and paragraphs of plain text: what a reader of the article reads.

Left out are references, tables, boxes, files, categories, addresses and comments, items of lists
that are no sentences, and sections that hold nothing else. A formula becomes `<formula>`.

`enwiki-words`: the articles of the Wikipedia sample as words, in the manner of WikiText.

Real text for the word level without a download: what a reader sees of each article, punctuation
apart, ` = Title = ` above it and one paragraph a line. Words that occur fewer than three times
in train are `<unk>`. Splits end between articles, where 90 and 95 percent of the words are nearest.
Other than in WikiText there are no blank lines, which are predictions that cost nothing.
"""

import re
import unicodedata
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

from txlbench.config.base import Split
from txlbench.config.catalogue import CORPORA
from txlbench.data.text import SPLITS, Text
from txlbench.data.vocabulary import UNKNOWN, Vocabulary, WordVocabulary
from txlbench.data.wikipedia import REMEDY, EnwikiSample
from txlbench.errors import UserError

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


Arguments = Sequence[str]
"""The positional arguments of a template, as plain text."""

Meaning = Callable[[Arguments], str]

SYMBOLS = {
    "'": "'",
    "'s": "'s",
    "=": "=",
    "!": "|",
    "·": "·",
    "dash": "–",
    "mdash": "—",
    "mdashb": "—",
    "nbsp": " ",
    "ndash": "–",
    "snd": " – ",
    "spaced ndash": " – ",
    "spaces": " ",
    "thinsp": " ",
}
"""Templates that stand for characters."""

FIRST = (
    "angbr,blockquote,bquote,cquote,e,italics,keypress,linktext,nihongo,nowrap,noitalic,quote,"
    "quotation,rquote,sc,sic,small,smaller,big,smallcaps,sub,sup,unicode,val,var,vanchor,year"
)
"""Templates that show their first argument."""

LAST = "lang,native name,resize,script,transl,transliteration"
"""Templates that show their last argument."""

SHIPS = "hms,rms,ss,uss"
RANGES = frozenset({"-", "–", "and", "by", "or", "to", "x"})
"""What `convert` puts between two values."""


def meaning(name: str) -> Meaning | None:
    """What makes words of the arguments of template `name`; None if it is no part of a text."""
    name = re.sub(r"[\s_]+", " ", name).strip().lower()
    return _first if name.startswith("lang-") else MEANINGS.get(name)


def _first(arguments: Arguments) -> str:
    return arguments[0] if arguments else ""


def _last(arguments: Arguments) -> str:
    return arguments[-1] if arguments else ""


def _conversion(arguments: Arguments) -> str:
    """`convert|3|to|4|km|mi`: the values and the unit in which the author gave them."""
    values = list(takewhile(lambda part: part in RANGES or part[:1] in "0123456789.-+−", arguments))
    return " ".join(arguments[: len(values) + 1])


def _symbol(symbol: str) -> Meaning:
    return lambda _: symbol


def _ship(prefix: str) -> Meaning:
    return lambda arguments: f"{prefix} {_first(arguments)}"


MEANINGS: dict[str, Meaning] = {
    **dict.fromkeys(FIRST.split(","), _first),
    **dict.fromkeys(LAST.split(","), _last),
    **{name: _symbol(symbol) for name, symbol in SYMBOLS.items()},
    **{name: _ship(name.upper()) for name in SHIPS.split(",")},
    "as of": lambda arguments: f"As of {' '.join(arguments)}",
    "chem": "".join,
    "convert": _conversion,
    "cvt": _conversion,
    "frac": "/".join,
    "simplenuclide2": "-".join,
}


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


PUNCTUATION = re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡§«°±·»¿×÷–—•…′″←→↔−")
ABBREVIATIONS = (
    "Bros|Capt|Col|Corp|Dr|Fr|Gen|Gov|Inc|Jr|Lt|Ltd|Maj|Mr|Mrs|Ms|Mt|Prof|Rep|Rev|Sen|Sgt|Sr|St|"
    "approx|ca|cf|etc|fl|vs"
)
TOKEN = re.compile(
    "|".join(
        (
            "<formula>",
            "@[-.,]@",
            r"(?<![^\W_])(?:[^\W\d_]\.){2,}",  # U.S. and e.g.
            r"(?<![^\W_])[A-Z]\.(?=\s+[A-Z])",  # The initial of a name.
            rf"(?<![^\W_])(?:{ABBREVIATIONS})\.(?=\s)",
            r"(?<![^\W_])No\.(?=\s*\d)",
            r"(?<=[^\W_])'[^\W\d_]+",  # What follows in it's, don't and O'Neill.
            rf"[^\s{PUNCTUATION}]+",
            r"\.{3,}|-{2,}",
            rf"[{PUNCTUATION}]",
        )
    )
)
CHARACTERS = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "´": "'", "‐": "-", "‑": "-"}
    | dict.fromkeys("\u00ad\u200b\u200c\u200d\u200e\u200f\ufeff", "")
)
HOLES = (
    (re.compile(r"([(\[])[\s,;:/–-]+"), r"\1"),
    (re.compile(r"[\s,;:/–-]+([)\]])"), r"\1"),
    (re.compile(r"\(\)|\[\]"), ""),
    (re.compile(r"\s+([,;:.])(?!\.)"), r"\1"),
    (re.compile(r"([,;:])(?:\s*[,;:])+"), r"\1"),
)
"""What dropped templates leave behind: empty brackets, and marks that separate nothing."""

JOINTS = (
    (re.compile(r"(?<=\d)([.,])(?=\d)"), r" @\1@ "),
    (re.compile(r"(?<=[^\W_])-(?=[^\W_])"), " @-@ "),
)


def words(text: str) -> list[str]:
    """The words and punctuation marks of a line of plain text."""
    text = unicodedata.normalize("NFC", text).translate(CHARACTERS)
    for pattern, replacement in HOLES + JOINTS:
        text = pattern.sub(replacement, text)
    return TOKEN.findall(text)


MIN_COUNT = 3
"""Occurrences in train that a word needs; as in WikiText."""

MIN_WORDS = 100
"""Words that an article needs: shorter ones are lists of links."""

SHARES = (0.90, 0.95)
"""Of all words, where valid and test begin."""


class EnwikiWords(EnwikiSample):
    """The sample's articles without their markup."""

    name = "enwiki-words"
    level = CORPORA[name].level
    split_rule = CORPORA[name].split_rule

    def texts(self, scratch: Path) -> Mapping[Split, Text]:
        if find_spec("mwparserfromhell") is None:
            raise UserError(f"{self.name}: the mwparserfromhell package is missing", REMEDY)
        written = [text for text in map(written_out, articles(self.xml(scratch))) if text]
        for split, part in zip(SPLITS, _parts(written), strict=True):
            (scratch / f"{split}.txt").write_text("".join(part), encoding="utf-8")
        return {split: Text(scratch / f"{split}.txt") for split in SPLITS}

    def vocabulary(self, texts: Mapping[Split, Text]) -> Vocabulary:
        counts = self.count(texts)
        rare = [word for word, count in counts.items() if count < MIN_COUNT]
        counts[UNKNOWN] += sum(counts.pop(word) for word in rare)
        return WordVocabulary.from_counts(counts)


def written_out(article: Article) -> str:
    """An article as lines of words, or nothing if it has too few."""
    lines = [_heading(article.title, 1)]
    for passage in passages(article.markup):
        level = passage.level
        lines.append(_heading(passage.text, level) if level else " ".join(words(passage.text)))
    text = "".join(f"{line}\n" for line in lines)
    return text if len(text.split()) >= MIN_WORDS else ""


def _heading(text: str, level: int) -> str:
    signs = "= " * level
    return f"{signs}{' '.join(words(text))}{signs[::-1]}"


def _parts(written: list[str]) -> Iterator[list[str]]:
    """The articles of train, valid and test."""
    sizes = [len(text.split()) for text in written]
    start = 0
    for share in SHARES:
        stop = min(range(len(sizes) + 1), key=lambda n: abs(sum(sizes[:n]) - share * sum(sizes)))
        yield written[start:stop]
        start = stop
    yield written[start:]
