"""Text is cut into words as the WikiText corpora are."""

import pytest

from txlbench.data.wiki_words import words


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
