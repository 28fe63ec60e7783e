"""The Wikipedia sample as words is always the same clean text."""

import re
from itertools import chain

import numpy as np
import pytest

from txlbench.config.catalogue import CORPORA
from txlbench.config.corpus import CorpusConfig
from txlbench.data import enwiki_words
from txlbench.data.enwiki_words import written_out
from txlbench.data.preparation import prepare
from txlbench.data.wiki_dump import Article
from txlbench.errors import UserError

CONFIG = CorpusConfig(name="enwiki-words")
TOKENS = {"train": 470_941, "valid": 23_302, "test": 28_681}
"""Changes with the rules of the markup or of the words: then with a new split rule as well, so
that corpora that were prepared before are not taken for it."""

VOCABULARY = 12_742


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TXLBENCH_DATA", str(tmp_path_factory.mktemp("data")))
        return prepare(CONFIG)


@pytest.fixture(scope="module")
def lines(corpus):
    return [
        line
        for split in TOKENS
        for line in corpus.vocabulary.decode(corpus.ids(split)).splitlines()
    ]


def test_the_counts_are_pinned(corpus):
    assert corpus.tokens == TOKENS
    assert len(corpus.vocabulary) == VOCABULARY
    assert CORPORA["enwiki-words"].tokens == TOKENS
    assert CORPORA["enwiki-words"].vocabulary_size == VOCABULARY
    assert corpus.checksum.startswith("34c1c630")
    assert corpus.warnings == ()


def test_rare_words_are_unk_and_no_other_word_is(corpus):
    ids, symbols = corpus.ids("train"), corpus.vocabulary.symbols
    counts = dict(zip(symbols, np.bincount(ids, minlength=len(symbols)), strict=True))
    assert min(counts.values()) == 3
    assert symbols[0] == "<eos>"
    shares = [
        float((corpus.ids(split) == corpus.vocabulary.index["<unk>"]).mean()) for split in TOKENS
    ]
    assert shares == pytest.approx([0.056, 0.104, 0.102], abs=0.001)
    assert list(counts.values())[1:] == sorted(list(counts.values())[1:], reverse=True)


def test_splits_are_whole_articles_of_90_5_and_5_percent(corpus, lines):
    total = sum(TOKENS.values())
    assert [TOKENS[split] / total for split in TOKENS] == pytest.approx([0.9, 0.05, 0.05], abs=0.01)
    for split in TOKENS:
        first = corpus.vocabulary.decode(corpus.ids(split)[:20]).splitlines()[0]
        assert re.fullmatch("= [^=]+ =", first)


def test_nothing_of_the_markup_is_left(lines):
    leftover = re.compile(
        r"\[ \[|\] \]|\{ \{|\} \}|\{ \||https?|www|thumb \||< (ref|br|/)|File :|Category :|"
        r"\( \)|\( [,;]|\x00"
    )
    assert [line for line in lines if leftover.search(line)] == []


def test_headings_are_nested_and_paragraphs_follow_the_last(lines):
    headings = [line for line in lines if line.startswith("=")]
    assert len(headings) > 1500
    assert all(re.fullmatch(r"((= )+)[^=].*?( =)+", line) for line in headings)
    for line, following in zip(lines, chain(lines[1:], ["="]), strict=True):
        if line.startswith("= =") and following.startswith("="):
            assert following.count("=") > line.count("=")


def test_no_line_is_empty_or_a_mere_mark(lines):
    assert all(re.search(r"\w", line) for line in lines)


def test_an_article_of_a_few_words_is_left_out():
    assert written_out(Article("Ada", "'''Ada''' may refer to many things:\n* [[Ada]]")) == ""


def test_an_article_is_a_title_headings_and_paragraphs():
    text = written_out(Article("Ada (name)", f"{'word ' * 99}end.\n== It's ==\nThis is the end."))
    lines = text.split("\n")
    assert lines[0] == "= Ada ( name ) ="
    assert lines[2:] == ["= = It 's = =", "This is the end .", ""]


def test_a_missing_parser_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(enwiki_words, "find_spec", lambda name: None)
    message = r"the mwparserfromhell package is missing; pip install 'txlbench\[sample\]'"
    with pytest.raises(UserError, match=message):
        prepare(CONFIG)
