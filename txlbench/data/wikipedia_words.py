"""`enwiki-words`: the articles of the Wikipedia sample as words, in the manner of WikiText.

Real text for the word level without a download. Markup is removed by gensim; kept are the title
(` = Title = `), the headings, and every paragraph or list item that holds a sentence, one a line.
Words that occur fewer than three times in train are `<unk>`. Splits end between articles, where 90
and 95 percent of the words are nearest. Unlike WikiText there are no blank lines, whose `<eos>` is
a prediction that costs nothing.

Punctuation stands apart, and `@-@` is a mark that joined two words: `well-known`, `1,000` and `3.5`
become `well @-@ known`, `1 @,@ 000` and `3 @.@ 5`, from which the text can be restored. The rules
are those that the WikiText corpora show (Merity et al. 2017).
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from txlbench.config.base import Split
from txlbench.data.text import SPLITS, TextPart
from txlbench.data.vocabulary import UNKNOWN, Vocabulary, WordVocabulary
from txlbench.data.wikipedia import REMEDY, EnwikiSample
from txlbench.errors import UserError

FORMULA = "<formula>"
MARKER = "\ue000"
"""Stands for a formula while markup is removed; of the Private Use Area, so in no text."""

REWRITTEN = (
    (re.compile(r"<math[^>/]*>.*?</math>", re.DOTALL), f" {MARKER} "),
    (re.compile(r"<(pre|source|syntaxhighlight)\b[^>/]*>.*?</\1>", re.DOTALL), ""),
    (re.compile(r"<br\s*/?>", re.I), "\n\n"),
    (re.compile(r"\[\[[a-z-]{2,}:[^\s\[\]][^\[\]]*\]\]"), ""),  # a link to another language
    (re.compile(r"\{\{\s*(?:convert|cvt)\|([^{}|]*)\|([^{}|]*)[^{}]*\}\}", re.I), r"\1 \2"),
    (re.compile(r"\{\{\s*lang(?:\|[^{}|]*|-[a-z]+)\|([^{}|]*)[^{}]*\}\}", re.I), r"\1"),
    (re.compile(r"\{\{\s*(?:nowrap|sub|sup|smallcaps)\|([^{}|]*)\}\}", re.I), r"\1"),
    (re.compile(r"\{\{\s*(?:[nm]?dash|spaced ndash|snd)\s*\}\}", re.I), " – "),
)
"""Markup that gensim drops though it stands for words, or keeps though it does not."""

WRAPPED = re.compile(r"(?<=[a-z,]) *\n(?=[a-z(])")
"""A line break inside a sentence."""
HEADING = re.compile(r"(={2,6})\s*(.+?)\s*\1")
PARAGRAPH = re.compile(r"(?:\S+\s+){3,}.*[.!?](?:.*(?:[:;,\"')\]]|<formula>))?")
"""A line that holds a sentence; `The parts are:` alone, whose list is dropped, does not."""
ITEM = re.compile(r"[*#:;]+\s*((?:\S+\s+){6,}.*[.!?][\"')\]]?)")
"""An item of a list, or an indented line, that is a sentence."""
DEBRIS = re.compile(r"(?:https?://|www\.)\S+|'{2,5}|\{\{|\}\}|\[\[|\]\]|^.*\|.*$")
"""Remains of broken markup: addresses, style marks, brackets, captions, rows of tables."""

DROPPED_SECTIONS = re.compile(
    "bibliography|citations|discography|external links|filmography|footnotes|further reading|"
    "gallery|literature|(references and )?notes|(notes and )?references|publications|"
    "related topics|see also|(selected )?(bibliography|works)|sources|works cited",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Passage:
    """A heading, whose level is the number of its equals signs, or a paragraph, of level 0."""

    text: str
    level: int = 0


def articles(path: Path) -> Iterator[tuple[str, str]]:
    """Yields (title, wiki markup) of each article of the XML dump at `path`, without redirects."""
    from gensim.corpora.wikicorpus import extract_pages

    with path.open("rb") as file:
        for title, markup, _ in extract_pages(file, filter_namespaces=("0",)):
            if markup and not markup.lstrip().upper().startswith("#REDIRECT"):
                yield title, markup


def passages(markup: str) -> Iterator[Passage]:
    """Yields headings and paragraphs, without sections that are dropped or have no paragraph."""
    headings: list[Passage] = []  # Those that still wait for a paragraph.
    dropped = 0  # The level of the section that is left out, 0 for none.
    for passage in _all_passages(markup):
        if passage.level == 0 and not dropped:
            yield from headings
            yield passage
            headings = []
        elif passage.level and (not dropped or passage.level <= dropped):
            dropped = passage.level if DROPPED_SECTIONS.fullmatch(passage.text) else 0
            headings = [heading for heading in headings if heading.level < passage.level]
            headings += [] if dropped else [passage]


def _all_passages(markup: str) -> Iterator[Passage]:
    from gensim.corpora.wikicorpus import filter_wiki

    for pattern, replacement in REWRITTEN:
        markup = pattern.sub(replacement, markup)
    for line in WRAPPED.sub(" ", filter_wiki(markup)).splitlines():
        line = " ".join(DEBRIS.sub("", line).replace(MARKER, FORMULA).split())
        if heading := HEADING.fullmatch(line):
            yield Passage(heading[2], len(heading[1]))
        elif item := ITEM.fullmatch(line):
            yield Passage(item[1])
        elif line[:1] not in "*#:;" and PARAGRAPH.fullmatch(line):
            yield Passage(line)


PUNCTUATION = re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡§«°±·»¿×÷–—•…′″←→↔−")
ABBREVIATIONS = (
    "Bros|Capt|Col|Corp|Dr|Fr|Gen|Gov|Inc|Jr|Lt|Ltd|Maj|Mr|Mrs|Ms|Mt|Prof|Rep|Rev|Sen|Sgt|Sr|St|"
    "approx|ca|cf|etc|fl|vs"
)
TOKEN = re.compile(
    "|".join(
        (
            FORMULA,
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
"""Traces of dropped templates: empty brackets, and marks that separate nothing."""

JOINTS = (
    (re.compile(r"(?<=\d)([.,])(?=\d)"), r" @\1@ "),
    (re.compile(r"(?<=[^\W_])-(?=[^\W_])"), " @-@ "),
)


def words(text: str) -> list[str]:
    """Splits a line of plain text into words and punctuation marks."""
    text = unicodedata.normalize("NFC", text).translate(CHARACTERS)
    for pattern, replacement in HOLES + JOINTS:
        text = pattern.sub(replacement, text)
    return TOKEN.findall(text)


MIN_COUNT = 3
"""Occurrences in train that a word needs, as in WikiText."""

MIN_WORDS = 100
"""Words that an article needs: shorter ones are lists of links."""

SHARES = (0.90, 0.95)
"""Shares of all words at which valid and test begin."""


class EnwikiWords(EnwikiSample):
    """The sample's articles without their markup."""

    name = "enwiki-words"
    level = "word"
    split_rule = "x"

    def texts(self, scratch: Path) -> Mapping[Split, TextPart]:
        if find_spec("gensim") is None:
            raise UserError(f"{self.name}: the gensim package is missing", REMEDY)
        xml = self.xml(scratch)
        written = [text for text in (article_text(*each) for each in articles(xml)) if text]
        for split, part in zip(SPLITS, _parts(written), strict=True):
            (scratch / f"{split}.txt").write_text("".join(part), encoding="utf-8")
        return {split: TextPart(scratch / f"{split}.txt") for split in SPLITS}

    def vocabulary(self, texts: Mapping[Split, TextPart]) -> Vocabulary:
        counts = self.count(texts)
        rare = [word for word, count in counts.items() if count < MIN_COUNT]
        counts[UNKNOWN] += sum(counts.pop(word) for word in rare)
        return WordVocabulary.from_counts(counts)


def article_text(title: str, markup: str) -> str:
    """Returns an article as lines of words, or nothing if it has fewer than MIN_WORDS."""
    lines = [_heading(title, 1)]
    for passage in passages(markup):
        level = passage.level
        lines.append(_heading(passage.text, level) if level else " ".join(words(passage.text)))
    text = "".join(f"{line}\n" for line in lines)
    return text if len(text.split()) >= MIN_WORDS else ""


def _heading(text: str, level: int) -> str:
    signs = "= " * level
    return f"{signs}{' '.join(words(text))}{signs[::-1]}"


def _parts(written: list[str]) -> Iterator[list[str]]:
    """Yields the articles of train, valid and test."""
    sizes = [len(text.split()) for text in written]
    start = 0
    for share in SHARES:
        stop = min(range(len(sizes) + 1), key=lambda n: abs(sum(sizes[:n]) - share * sum(sizes)))
        yield written[start:stop]
        start = stop
    yield written[start:]
