"""`enwiki-words`: the articles of the Wikipedia sample as words, in the manner of WikiText.

Real text for the word level without a download: what a reader sees of each article, punctuation
apart, ` = Title = ` above it and one paragraph a line. Words that occur fewer than three times
in train are `<unk>`. Splits end between articles, where 90 and 95 percent of the words are nearest.
Other than in WikiText there are no blank lines, which are predictions that cost nothing.
"""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from txlbench.config.catalogue import CORPORA
from txlbench.config.section import Split
from txlbench.data.enwiki_sample import REMEDY, EnwikiSample
from txlbench.data.levels import WordVocabulary
from txlbench.data.splits import SPLITS
from txlbench.data.text import Text
from txlbench.data.vocabulary import UNKNOWN, Vocabulary
from txlbench.data.wiki_dump import Article, articles
from txlbench.data.wiki_markup import passages
from txlbench.data.wiki_words import words
from txlbench.errors import UserError

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
