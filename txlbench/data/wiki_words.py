"""Plain text to the words of WikiText: punctuation apart, `@-@` where a mark joined two words.

So `well-known`, `1,000` and `3.5` become `well @-@ known`, `1 @,@ 000` and `3 @.@ 5`, from which
the text can be had again. The rules are those that the WikiText corpora show (Merity et al. 2017),
written anew; the tokeniser of their makers is not used.
"""

import re
import unicodedata

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
