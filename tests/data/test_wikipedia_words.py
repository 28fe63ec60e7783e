"""The Wikipedia sample as words is always the same clean text, cut as the WikiText corpora are."""

import re
from itertools import chain

import numpy as np
import pytest

from txlbench.config.catalogue import CORPORA
from txlbench.config.run_config import CorpusConfig
from txlbench.data import wikipedia_words
from txlbench.data.prepare import prepare
from txlbench.data.wikipedia_words import (
    Passage,
    article_text,
    articles,
    passages,
    words,
)
from txlbench.errors import UserError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Well-known, said he.", "Well @-@ known , said he ."),
        ("It cost 1,000,000.50 dollars.", "It cost 1 @,@ 000 @,@ 000 @.@ 50 dollars ."),
        ("In 1939–1945, 50% of it", "In 1939 – 1945 , 50 % of it"),
        ("It's the dogs' and O'Neill's; don't.", "It 's the dogs ' and O 'Neill 's ; don 't ."),
        ("He said: “no”. (Yes!)", 'He said : " no " . ( Yes ! )'),
        ("The U.S. and e.g. the U.K.", "The U.S. and e.g. the U.K."),
        ("Dr. J. R. Smith Jr. lived on St. Mary St.", "Dr. J. R. Smith Jr. lived on St. Mary St ."),
        ("Vitamin A. It is No. 1 and/or no. 2...", "Vitamin A. It is No. 1 and / or no . 2 ..."),
        ("The set <formula> is; x < y.", "The set <formula> is ; x < y ."),
        ("A word\u00ad-break and spiral‐shaped", "A word @-@ break and spiral @-@ shaped"),
        ("Zoe\u0308 Ἀθῆναι 合気道", "Zoë Ἀθῆναι 合気道"),
        ("$5 & #1 [x] a_b", "$ 5 & # 1 [ x ] a _ b"),
    ],
)
def test_words_and_marks(text, expected):
    assert " ".join(words(text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Rome ( ; , born 1) is", "Rome ( born 1 ) is"),
        ("Rome () is [] old", "Rome is old"),
        ("Rome (Italy, ; ) is", "Rome ( Italy ) is"),
        ("Rome , is old .", "Rome , is old ."),
        ("Rome, , is; , old", "Rome , is ; old"),
    ],
)
def test_holes_that_templates_left_are_closed(text, expected):
    assert " ".join(words(text)) == expected


def test_the_text_can_be_had_again():
    text = "A 3.5-fold rise of 1,234 well-known cases"
    joined = " ".join(words(text))
    for mark in "-.,":
        joined = joined.replace(f" @{mark}@ ", mark)
    assert joined == text


CONFIG = CorpusConfig(name="enwiki-words")
TOKENS = {"train": 467_996, "valid": 22_815, "test": 29_277}
"""Changes with the rules of the markup or of the words: then with a new split rule as well, so
that corpora that were prepared before are not taken for it."""

VOCABULARY = 12_733


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
    assert [warning.split()[:3] for warning in corpus.warnings] == [
        ["valid", "has", "2,415"],
        ["test", "has", "3,018"],
    ]


def test_rare_words_are_unk_and_no_other_word_is(corpus):
    ids, symbols = corpus.ids("train"), corpus.vocabulary.symbols
    counts = dict(zip(symbols, np.bincount(ids, minlength=len(symbols)), strict=True))
    assert min(counts.values()) == 3
    assert symbols[0] == "<eos>"
    shares = [
        float((corpus.ids(split) == corpus.vocabulary.index["<unk>"]).mean()) for split in TOKENS
    ]
    assert shares == pytest.approx([0.0568, 0.1059, 0.1031], abs=1e-4)
    assert list(corpus.unk_share.values()) == pytest.approx(shares, abs=1e-12)
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
    assert article_text("Ada", "'''Ada''' may refer to many things:\n* [[Ada]]") == ""


def test_an_article_is_a_title_headings_and_paragraphs():
    text = article_text("Ada (name)", f"{'word ' * 99}end.\n== It's ==\nThis is the end.")
    lines = text.split("\n")
    assert lines[0] == "= Ada ( name ) ="
    assert lines[2:] == ["= = It 's = =", "This is the end .", ""]


def test_a_missing_parser_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setattr(wikipedia_words, "find_spec", lambda name: None)
    message = r"the gensim package is missing; pip install 'txlbench\[sample\]'"
    with pytest.raises(UserError, match=message):
        prepare(CONFIG)


PAGE = """
  <page><title>{title}</title><ns>{ns}</ns><id>1</id>{redirect}
    <revision><id>2</id><text xml:space="preserve">{text}</text></revision></page>"""


def test_only_articles_are_read_in_order_with_entities_resolved(tmp_path):
    pages = [
        PAGE.format(title="B &amp; C", ns=0, redirect="", text="&lt;b&gt;bold&lt;/b&gt;"),
        PAGE.format(title="Away", ns=0, redirect='<redirect title="A" />', text="#REDIRECT"),
        PAGE.format(title="Talk:A", ns=1, redirect="", text="talk"),
        PAGE.format(title="A", ns=0, redirect="", text="text"),
    ]
    path = tmp_path / "dump.xml"
    start = '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/">'
    path.write_text(f"{start}{''.join(pages)}</mediawiki>")
    assert list(articles(path)) == [("B & C", "<b>bold</b>"), ("A", "text")]


def read(markup):
    return [(passage.level, passage.text) for passage in passages(markup)]


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("A '''bold''' and ''slanted'' word here.", "A bold and slanted word here."),
        ("See [[Rome]] and [[Greece|the Greeks]] for more.", "See Rome and the Greeks for more."),
        (
            "It was so.<ref>{{cite web|url=x}}</ref> More of it.<ref name=a />",
            "It was so. More of it.",
        ),
        ("A town [http://x.org with a site] to see.", "A town with a site to see."),
        ("A town on http://x.org/y and [http://x.org] too.", "A town on and too."),
        ("It is a place.[[Category:Places|It]] [[de:Ort]] And more.", "It is a place. And more."),
        ("A film [[Alien: Covenant|of it]] came.[[Category: A]]", "A film of it came."),
        ("The site www.x.org/y is open now.", "The site is open now."),
        ("thumb|A [[road]]\nIt is a long road.", "It is a long road."),
        ("It is {{lang|la|magna|size=big}} in Latin.", "It is magna in Latin."),
        ("One &amp; two&nbsp;three &ndash; four.", "One & two three – four."),
        ("It is<!-- not --> here [[now]].", "It is here now."),
        ("The set <math>x \\in A</math> is not empty.", "The set <formula> is not empty."),
        ("A distance of {{convert|3|mi|km}} to walk.", "A distance of 3 mi to walk."),
        ("{{Infobox|a={{lang|x|y}}}}It has no box.{{cn}}", "It has no box."),
        (
            "Water is H<sub>2</sub>O and is <small>often</small> wet.",
            "Water is H2O and is often wet.",
        ),
        (
            "{|class=x\n|-\n| cell || [[cell]].\n|}\nWhat follows is a text.",
            "What follows is a text.",
        ),
        ("This line is wrapped\nand goes on here.", "This line is wrapped and goes on here."),
        (
            "<gallery>\nA.jpg|A view of it all.\n</gallery>\nIt is a fine view.",
            "It is a fine view.",
        ),
        ("Some <code>x = 1</code> is in here.", "Some x = 1 is in here."),
    ],
)
def test_one_paragraph(markup, text):
    assert read(markup) == [(0, text)]


@pytest.mark.parametrize(
    "markup",
    [
        "",
        "{{Infobox country | name = Algeria }}",
        "* [[Anarchism]]\n* [[Rome]] – a city\n** [http://x.org A site]",
        ":<math>a = b</math>",
        "thumb|A highway through the country",
        "<syntaxhighlight>\nx = 1. It is a line.\n</syntaxhighlight>",
        "Too short.",
        "* It is in Rome.",
        "Its parts are the following:\n* One\n* Two",
    ],
)
def test_what_is_no_prose_leaves_nothing(markup):
    assert read(markup) == []


def test_a_caption_that_is_a_sentence_is_a_paragraph():
    markup = "[[File:A.jpg|thumb|A ''[[view]]'' of it.]]\nIt is a fine place.\n"
    assert [text for _, text in read(markup)] == ["A view of it.", "It is a fine place."]
    assert read("[[File:A.jpg|thumb|A view of it]]") == []


def test_items_that_are_sentences_are_paragraphs():
    markup = (
        "* It is the first of the two sentences.\n* Rome\n"
        "*: ''It'' is the second one of these sentences.\nAnd this is a paragraph."
    )
    assert [text for _, text in read(markup)] == [
        "It is the first of the two sentences.",
        "It is the second one of these sentences.",
        "And this is a paragraph.",
    ]


def test_blank_lines_and_breaks_part_paragraphs():
    markup = "This is the first one.\n\nThis is the second one.<br/>This is the third one."
    assert len(read(markup)) == 3


def test_headings_keep_their_level_and_those_without_text_go():
    markup = "\n".join(
        (
            "== Alone ==",
            "== History ==",
            "=== ''Empty'' ===",
            "=== Early [[history|times]] ===",
            "There was a time once.",
            "== Economy ==",
            "There was money for all.",
        )
    )
    assert read(markup) == [
        (2, "History"),
        (3, "Early times"),
        (0, "There was a time once."),
        (2, "Economy"),
        (0, "There was money for all."),
    ]


@pytest.mark.parametrize(
    "title", ["References", "See also", "External links", "Notes and references"]
)
def test_sections_of_references_go_with_all_below_them(title):
    left_out = f"== {title} ==\nThis is not a text.\n=== Books ===\nNor is this one here.\n"
    markup = f"{left_out}== Art ==\nThis is a text again."
    assert list(passages(markup)) == [Passage("Art", 2), Passage("This is a text again.")]
