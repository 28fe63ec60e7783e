"""What is left of wiki markup is what a reader reads."""

import pytest

from txlbench.data.wiki_markup import Passage, passages


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
        ("[[File:A.jpg|thumb|A ''[[view]]'' of it.]]It is a fine place.", "It is a fine place."),
        ("It is a place.[[Category:Places|It]] [[de:Ort]] And more.", "It is a place. And more."),
        ("A film [[Alien: Covenant|of it]] came.[[Category: A]]", "A film of it came."),
        ("The site www.x.org/y is open now.", "The site is open now."),
        ("thumb|A [[road]]\nIt is a long road.", "It is a long road."),
        ("It is {{lang|la|magna|size=big}} in Latin.", "It is magna in Latin."),
        ("One &amp; two&nbsp;three &ndash; four.", "One & two three – four."),
        ("It is<!-- not --> here <nowiki>[[now]]</nowiki>.", "It is here [[now]]."),
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
        "[[File:A.jpg|thumb|This is a picture of it.]]",
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
