"""Classes of tokens: which tokens use context.

By frequency in the training text (800 occurrences, Khandelwal et al. 2018; the most frequent tenth
of the types, Sun et al. 2021), by the distance to the last occurrence of the same token (Sun et
al.: those that could be copied), and by the place in a word. m(c), its gain and ECL are taken over
each class.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.context.curve import length_interval
from txlbench.evaluation.context.resampling import Resampling, interval, intervals
from txlbench.evaluation.recl.metric import ModelGroup
from txlbench.records.context_schema import ClassCurve, Interval, TokenClass

FREQUENT = 800
"""Occurrences in training that make a token frequent (Khandelwal et al. 2018)."""
TOP_TYPES = 0.1
"""Share of the types that are frequent (Sun et al. 2021)."""
COPIED = 6
"""Symbols of a copied string where a token is a byte or character: a single one recurs always."""
FEWEST_TOKENS = 50
"""Tokens of a class with fewer of which nothing is said of it."""
NEARLY_ALL = 0.9
"""Share of the tokens that a class has where it is said to have nearly all."""
DISTANCES = 3
"""Boundaries between classes of distance."""
LAST_PLACE = 4
ORDINALS = ("first", "second", "third", "fourth")
"""Pieces of a word from this one on are one class."""
WORD_STARTS = ("\u0120", "\u2581", " ")
"""Marks of tokenizers before the first piece of a word: byte-level BPE, SentencePiece, a space."""


LARGEST_CODE = 1 << 62


@dataclass(frozen=True, eq=False)
class TokenText:
    """The text whose tokens were scored.

    Attributes:
        ids: [N], token ids; positions are indices into it.
        pieces: what each id reads as; None where nobody says.
        counts: [V], occurrences in the training text; None where nobody says.
        training: token ids of the training text; None where there is none.
        unit: what a token is: a symbol is a byte or a character.
    """

    ids: NDArray[np.integer]
    pieces: Sequence[str] | None = None
    counts: NDArray[np.integer] | None = None
    training: NDArray[np.integer] | None = None
    unit: Literal["symbol", "piece", "word"] = "piece"


@dataclass(frozen=True, eq=False)
class Partition:
    """Classes of T tokens.

    Attributes:
        kind: what tokens are told apart by.
        names: of the K classes, as they follow the word "tokens".
        labels: [T], the class of each token; -1 for none.
    """

    kind: str
    names: tuple[str, ...]
    labels: NDArray[np.intp]


def partitions(
    text: TokenText, positions: NDArray[np.int64], contexts: Sequence[int]
) -> Iterator[Partition]:
    """Every partition that `text` allows of the tokens at `positions` [T]."""
    tokens = np.asarray(text.ids)[positions]
    if text.counts is not None:
        yield from _by_frequency(np.asarray(text.counts), tokens)
    bounds = distance_bounds(contexts)
    seen = copy_distances(text, positions)
    yield _by_distance("distance to the last occurrence", "", seen, bounds)
    if text.unit == "symbol":
        copied, what = copy_distances(text, positions, COPIED), f"ending {COPIED} symbols "
        yield _by_distance(f"distance to the last same {COPIED} symbols", what, copied, bounds)
    if text.pieces is not None and text.unit != "word":
        places = word_places(text, positions)
        if (places > 1).any():
            yield from _by_place(places, text.unit)


def _by_frequency(counts: NDArray[np.integer], tokens: NDArray[np.integer]) -> Iterator[Partition]:
    often = counts[tokens] >= FREQUENT
    names = (f"met {FREQUENT} times or more in training", f"met under {FREQUENT} times in training")
    yield Partition("occurrences in training", names, np.where(often, 0, 1))
    types = np.count_nonzero(counts)
    top = np.argsort(-counts, kind="stable")[: max(1, round(TOP_TYPES * types))]
    is_top = np.isin(tokens, top)
    names = ("of the most frequent tenth of types", "of the rarer types")
    yield Partition("rank in training", names, np.where(is_top, 0, 1))


def distance_bounds(contexts: Sequence[int]) -> list[int]:
    """Up to three contexts that divide distances: first, about geometric middle and last."""
    middle = min(contexts, key=lambda context: abs(np.log(context**2 / contexts[0] / contexts[-1])))
    return sorted({contexts[0], middle, contexts[-1]})


def copy_distances(
    text: TokenText, positions: NDArray[np.int64], length: int = 1
) -> NDArray[np.int64]:
    """[T]: tokens back to the last occurrence of the same token; 0 where there is none.

    Args:
        length: that token and those before it have to be the same, this many in all.
    """
    end = int(positions[-1]) + 1
    ids = np.asarray(text.ids[:end], dtype=np.int64)
    symbols = int(ids.max()) + 1
    codes = ids
    for back in range(1, length):
        if int(codes.max()) >= LARGEST_CODE // symbols:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
        longer = np.empty_like(codes)
        longer[back:] = codes[back:] * symbols + ids[:-back]
        longer[:back] = -1 - np.arange(back)  # too little before them to be alike
        codes = longer
    order = np.argsort(codes, kind="stable")
    is_same = codes[order[1:]] == codes[order[:-1]]
    distances = np.zeros(end, dtype=np.int64)
    distances[order[1:][is_same]] = (order[1:] - order[:-1])[is_same]
    found: NDArray[np.int64] = distances[positions]
    return found


def _by_distance(
    kind: str, what: str, distances: NDArray[np.int64], bounds: Sequence[int]
) -> Partition:
    """Classes of distance.

    Args:
        what: what was seen, where it is not the token alone.
    """
    names = [f"{what}last seen {f'1 to {bounds[0]:,}' if bounds[0] > 1 else '1'} back"]
    names += [f"{what}last seen {low + 1:,} to {high:,} back" for low, high in pairwise(bounds)]
    names.append(f"{what}not seen in the last {bounds[-1]:,}")
    far = np.where(distances == 0, np.iinfo(np.int64).max, distances)
    return Partition(kind, tuple(names), np.searchsorted(bounds, far, side="left"))


def word_places(text: TokenText, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """[T]: the place of each token in its word, from 1; 0 between words.

    A word is a run of pieces with letters or digits; it begins at a piece that follows none, or
    that says so with a mark or a space.
    """
    assert text.pieces is not None
    pieces = text.pieces
    is_word = np.array([_has_letters(piece) for piece in pieces])
    begins = np.array([piece.startswith(WORD_STARTS) or not _is_inner(piece) for piece in pieces])
    ends = np.array([not piece[-1:].isalnum() and not _is_high(piece[-1:]) for piece in pieces])
    if text.unit == "symbol":
        begins &= ~is_word
    last = int(positions[-1]) + 1
    ids = np.asarray(text.ids[:last], dtype=np.int64)
    inside = is_word[ids]
    first = inside.copy()
    first[1:] &= begins[ids[1:]] | ends[ids[:-1]] | ~inside[:-1]
    index = np.arange(last)
    start = np.maximum.accumulate(np.where(first, index, -1))
    places = np.where(inside, index - start + 1, 0)
    found: NDArray[np.int64] = places[positions]
    return found


def _has_letters(piece: str) -> bool:
    return any(
        letter.isalnum() or _is_high(letter) for letter in piece.lstrip("".join(WORD_STARTS))
    )


def _is_inner(piece: str) -> bool:
    """Whether a piece can go on with a word: it begins with a letter or digit."""
    return piece[:1].isalnum() or _is_high(piece[:1])


def _is_high(letter: str) -> bool:
    """Whether a letter is none of ASCII; as a byte, it is part of a letter in UTF-8."""
    return letter >= "\x80" and letter not in WORD_STARTS


def _by_place(places: NDArray[np.int64], unit: str) -> Iterator[Partition]:
    if unit == "piece":
        kinds = np.select([places == 1, places > 1], [0, 1], -1)
        yield Partition("piece of a word", ("beginning a word", "later in a word"), kinds)
    last = f"{ORDINALS[LAST_PLACE - 1]} or later in a word"
    names = ("between words", *(f"{each} in a word" for each in ORDINALS[: LAST_PLACE - 1]), last)
    yield Partition("place in the word", names, np.minimum(places, LAST_PLACE))


def token_classes(
    group: ModelGroup, partition: Partition, resampling: Resampling, threshold: float
) -> Iterator[TokenClass]:
    """The classes of one partition that have enough tokens."""
    whole = [resampling.totals(losses[0] - losses[-1]) for losses in group.losses]
    for number, name in enumerate(partition.names):
        chosen = partition.labels == number
        tokens = int(np.count_nonzero(chosen))
        if tokens >= FEWEST_TOKENS:
            yield TokenClass(
                kind=partition.kind,
                name=name,
                tokens=tokens,
                share=tokens / len(chosen),
                curves=tuple(
                    _class_curve(group, model, chosen, whole[model], resampling, threshold)
                    for model in range(len(group.names))
                ),
            )


def why_undivided(partition: Partition) -> str:
    """Why fewer than two classes of a partition have enough tokens."""
    labels = partition.labels[partition.labels >= 0]
    largest = int(np.bincount(labels, minlength=1).max())
    if largest >= FEWEST_TOKENS and largest >= NEARLY_ALL * len(labels):
        return "nearly all tokens are of one class"
    return f"too few tokens: no two classes have {FEWEST_TOKENS} of the {len(labels):,}"


def _class_curve(
    group: ModelGroup,
    model: int,
    chosen: NDArray[np.bool_],
    whole: NDArray[np.float64],
    resampling: Resampling,
    threshold: float,
) -> ClassCurve:
    """One model on the tokens `chosen` [T].

    Args:
        whole: [1 + N], its gain summed over all tokens.
    """
    losses = group.losses[model]
    means = resampling.means(losses, chosen)
    part: Interval | None = None
    if whole[0] > 0:
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = resampling.totals((losses[0] - losses[-1]) * chosen) / whole
        part = interval(np.where(whole > 0, shares, np.nan))
    return ClassCurve(
        model=group.names[model],
        losses=intervals(means),
        gain=interval(means[0] - means[-1]),
        ecl=length_interval(means, group, model, threshold),
        part=part,
    )
