"""The templates of Wikipedia that stand for words in a sentence, as the words they stand for.

All other templates (citations, boxes, notices, pronunciations) mean nothing in running text.
"""

import re
from collections.abc import Callable, Sequence
from itertools import takewhile

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
