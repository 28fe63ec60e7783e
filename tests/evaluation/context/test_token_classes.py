import math
import re

import numpy as np
import pytest

from tests.evaluation.context.made import assert_nominal, group, holds, resampling_of, simulated
from txlbench.evaluation.context import token_classes as module
from txlbench.evaluation.context.token_classes import (
    Partition,
    TokenText,
    copy_distances,
    distance_bounds,
    partitions,
    token_classes,
    why_undivided,
    word_places,
)

CONTEXTS = (10, 100, 1000)
LETTERS = tuple(map(chr, range(256)))


def last_same(ids, position, length):
    """Tokens back to where the same string of `length` ended before; 0 if it never did."""
    here = ids[position - length + 1 : position + 1]
    for end in range(position - 1, length - 2, -1):
        if ids[end - length + 1 : end + 1] == here:
            return position - end
    return 0


@pytest.mark.parametrize("length", [1, 2, 6])
@pytest.mark.parametrize("largest", [1 << 62, 50])
def test_distances_are_those_of_a_search_backwards(length, largest, monkeypatch):
    monkeypatch.setattr(module, "LARGEST_CODE", largest)
    ids = np.random.default_rng(0).integers(3, size=400)
    positions = np.arange(7, 400, 3)
    found = copy_distances(TokenText(ids), positions, length)
    expected = [last_same(ids.tolist(), position, length) for position in positions.tolist()]
    assert found.tolist() == expected


TEXT = "It's  a test: naïve co-op, 1999.\nThe end"


def by_regex(text):
    places = [0] * len(text)
    for word in re.finditer(r"\w+", text):
        for place, index in enumerate(range(*word.span()), start=1):
            places[index] = place
    return places


def test_places_in_words_of_characters_and_bytes():
    text = TokenText(np.array([ord(letter) for letter in TEXT]), LETTERS, unit="symbol")
    assert word_places(text, np.arange(len(TEXT))).tolist() == by_regex(TEXT)
    encoded = TEXT.encode()
    text = TokenText(np.array(list(encoded)), LETTERS, unit="symbol")
    found = word_places(text, np.arange(len(encoded))).tolist()
    of_bytes = [
        place for place, letter in zip(by_regex(TEXT), TEXT, strict=True) if letter < "\x80"
    ]
    assert [place for place, byte in zip(found, encoded, strict=True) if byte < 128][:14] == (
        of_bytes[:14]
    )


@pytest.mark.parametrize("mark", ["\u0120", "\u2581", " "])
def test_places_in_words_of_pieces(mark):
    pieces = (f"{mark}Trans", "former", f"{mark}XL", ",", "el", "le", "ctric", f"{mark}", "\n")
    ids = np.array([0, 1, 2, 3, 4, 6, 8, 4, 5, 7, 1, 0])
    text = TokenText(ids, pieces, unit="piece")
    assert word_places(text, np.arange(12)).tolist() == [1, 2, 1, 0, 1, 2, 0, 1, 2, 0, 1, 1]


def names(found):
    return {each.kind: each.names for each in found}


def test_classes_are_told_apart_as_far_as_the_text_is_known():
    ids = np.tile(np.arange(97, 107), 30)
    positions = np.arange(100, 300)
    alone = names(partitions(TokenText(ids), positions, CONTEXTS))
    assert list(alone) == ["distance to the last occurrence"]
    words = names(partitions(TokenText(ids, LETTERS, unit="word"), positions, CONTEXTS))
    assert words == alone
    counts = np.zeros(256, dtype=int)
    counts[97:107] = 10 ** np.arange(10)
    text = TokenText(ids, LETTERS, counts, unit="symbol")
    found = {each.kind: each for each in partitions(text, positions, CONTEXTS)}
    assert list(found) == [
        "occurrences in training",
        "rank in training",
        "distance to the last occurrence",
        "distance to the last same 6 symbols",
        "place in the word",
    ]
    often = found["occurrences in training"].labels == 0
    assert np.array_equal(often, counts[ids[positions]] >= 800)
    assert np.array_equal(found["rank in training"].labels == 0, ids[positions] == 106)
    assert (found["distance to the last occurrence"].labels == 0).all()


def test_bounds_are_contexts_that_were_measured():
    assert distance_bounds(range(100, 1001, 100)) == [100, 300, 1000]
    assert distance_bounds((1, 2, 4, 8, 16)) == [1, 4, 16]
    assert distance_bounds((5,)) == [5]


def copied(random, tokens=1000):
    """A text that repeats with period 50 or 500, or not; a token gains .5 nats as soon as the
    context reaches its last occurrence, and .1 nats by a longer context as such."""
    length = tokens + 1000
    ids = np.arange(length) + 10
    back = np.where(random.random(length) < 0.5, 50, 500)
    is_copy = random.random(length) < 0.6
    for token in np.flatnonzero(is_copy & (np.arange(length) >= 500)):
        ids[token] = ids[token - back[token]]
    positions = np.arange(1000, length)
    distances = copy_distances(TokenText(ids), positions)
    reached = (distances > 0) & (distances <= np.array(CONTEXTS)[:, None])
    losses = 3 - 0.5 * reached - 0.1 * np.arange(3)[:, None]
    losses = losses + 0.3 * random.standard_normal((3, tokens))
    return TokenText(ids), group(losses[None], CONTEXTS)


def measured(text, one):
    resampling = resampling_of(one)
    (partition,) = partitions(text, one.positions, CONTEXTS)
    found = token_classes(one, partition, resampling, 0.01)
    return {each.name: each for each in found}


def test_known_gains_of_copies_are_covered_at_their_rate():
    def covered(random):
        found = measured(*copied(random))
        near, far = found["last seen 11 to 100 back"], found["last seen 101 to 1,000 back"]
        never = found["not seen in the last 1,000"]
        return (
            holds(near.curves[0].gain, 0.7),
            holds(far.curves[0].gain, 0.7),
            holds(never.curves[0].gain, 0.2),
            holds(near.curves[0].losses[1], 2.4),
            holds(far.curves[0].losses[1], 2.9),
        )

    assert_nominal(simulated(covered))


def test_a_class_is_its_tokens_one_after_another():
    text, one = copied(np.random.default_rng(3))
    losses = one.losses[0]
    distances = copy_distances(text, one.positions).tolist()
    (each,) = [c for name, c in measured(text, one).items() if name == "last seen 11 to 100 back"]
    tokens = [t for t, distance in enumerate(distances) if 10 < distance <= 100]
    (curve,) = each.curves
    for row in range(3):
        mean = math.fsum(losses[row, t] for t in tokens) / len(tokens)
        assert curve.losses[row].value == pytest.approx(mean, abs=1e-9)
    gained = math.fsum(losses[0, t] - losses[2, t] for t in tokens)
    whole = math.fsum((losses[0] - losses[2]).tolist())
    assert curve.gain.value == pytest.approx(gained / len(tokens), abs=1e-9)
    assert curve.part.value == pytest.approx(gained / whole, abs=1e-9)
    assert (each.tokens, each.share) == (len(tokens), len(tokens) / 1000)


def test_parts_of_the_gain_add_up_to_all_of_it():
    found = measured(*copied(np.random.default_rng(3))).values()
    assert sum(each.curves[0].part.value for each in found) == pytest.approx(1, abs=1e-9)


def test_noise_alone_lets_no_class_gain():
    def resolved(random):
        losses = 2 + 0.3 * random.standard_normal((1, 3, 1000))
        one = group(losses, CONTEXTS)
        labels = random.integers(2, size=1000)
        found = token_classes(
            one, Partition("kind", ("one", "two"), labels), resampling_of(one), 0.01
        )
        return [each.curves[0].gain.is_resolved for each in found]

    assert np.all(simulated(resolved, 100).mean(axis=0) <= 0.1)


def test_a_class_with_few_tokens_is_left_out():
    one = group(np.ones((1, 3, 1000)), CONTEXTS)
    labels = np.where(np.arange(1000) < 20, 0, 1)
    found = token_classes(one, Partition("kind", ("few", "many"), labels), resampling_of(one), 0.01)
    assert [each.name for each in found] == ["many"]
    found = token_classes(one, Partition("kind", ("few", "many"), labels), resampling_of(one), 0.01)
    assert [each.curves[0].part for each in found] == [None]


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ((960, 40, 0), "nearly all tokens are of one class"),
        ((60, 40, 40), "too few tokens: no two classes have 50 of the 100"),
        ((40, 0, 0), "too few tokens: no two classes have 50 of the 40"),
        ((0, 0, 30), "too few tokens: no two classes have 50 of the 0"),
    ],
)
def test_why_there_are_no_classes(counts, why):
    labels = np.repeat([0, 1, -1], counts)
    assert why_undivided(Partition("kind", ("a", "b"), labels)) == why
