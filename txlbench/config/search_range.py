"""What an experiment file lets `ablate --tune-trials` choose: a range of values by dotted key."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from txlbench.config.base import Section
from txlbench.config.loading import Document, Keys, Raw
from txlbench.errors import UserError

LOG_FROM = 10
"""A range of positive numbers that spans this factor is searched on a log scale."""
TUNABLE = ("model", "train")
"""Sections whose keys can be tuned."""
SCALARS = (bool, int, float, str, type(None))
RANGE_REMEDY = (
    "give [LOW, HIGH], {low: LOW, high: HIGH, log: true or false}, or {choices: [A, B, ...]}"
)


@dataclass(frozen=True)
class SearchRange:
    """The values that one key may take: numbers from low to high, or single choices.

    Attributes:
        log: numbers are searched on a log scale.
        choices: the only values, if there are any.
    """

    low: float = 0.0
    high: float = 0.0
    log: bool = False
    choices: tuple[Any, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether both ends are whole numbers, so that the values between are too."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values that a row must be able to take: all choices, or lowest and highest."""
        return self.choices or (self.low, self.high)

    def has(self, value: object) -> bool:
        """Whether `value` lies in the range."""
        if self.choices or isinstance(value, bool) or not isinstance(value, int | float):
            return value in self.choices
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if self.choices:
            return f"one of {', '.join(map(str, self.choices))}"
        return f"{self.low:g} to {self.high:g}{' (log)' * self.log}"


class Tuned(Section):
    """How a row's settings were chosen, as `ablate --tune-trials` writes it.

    Attributes:
        ranges: what was searched, by dotted key.
        trials: trainings that were tried.
        seed: of these trainings.
        valid_loss: of the best, in nats.
    """

    ranges: dict[str, str]
    trials: int
    seed: int
    valid_loss: float


def search_space(tune: Raw, document: Document) -> Mapping[str, SearchRange]:
    """Reads the section `tune`.

    Raises:
        UserError: for a range that is none, pointing at its place.
    """
    return {key: _range(key, value, document) for key, value in tune.items()}


def check_search(
    search: Mapping[str, SearchRange], fault: Callable[[Mapping[str, Any]], UserError | None]
) -> Iterator[str]:
    """Holds the ends of every range against a row, alone and in pairs.

    A value is refused if the row can take it with no end of any other range. Pairs that cannot be,
    of values that can, are told: a trial of one fails.

    Args:
        fault: what is wrong with a row that takes some values; None if nothing.

    Raises:
        UserError: for a value that the row cannot take.
    """
    alone = {(key, end): fault({key: end}) for key, each in search.items() for end in each.ends}
    wrong = {
        frozenset((one, other)): fault(dict((one, other)))
        for one, other in itertools.combinations(alone, 2)
        if one[0] != other[0]
    }
    for value, error in alone.items():
        if error is not None and all(pair for ends, pair in wrong.items() if value in ends):
            raise error
    pairs = {ends: error for ends, error in wrong.items() if error is not None}
    if pairs:
        ends, error = next(iter(pairs.items()))
        shown = " with ".join(f"{key} {value}" for key, value in sorted(ends, key=str))
        more = f", nor can {len(pairs) - 1} more pairs" if len(pairs) > 1 else ""
        yield f"tune: {shown} cannot be{more}; such trials count as failed ({error.problem})"


def _range(key: str, value: object, document: Document) -> SearchRange:
    place: Keys = ("tune", key)
    if key.partition(".")[0] not in TUNABLE or "." not in key:
        raise document.error(place, "cannot be tuned", "name a key of model or train, as train.lr")
    given = value
    if isinstance(value, list):
        given = {"low": value[0], "high": value[1]} if len(value) == 2 else {}
    if not isinstance(given, dict) or not given.keys() <= {"low", "high", "log", "choices"}:
        raise document.error(place, f"{value!r} is no range", RANGE_REMEDY)
    if given.keys() == {"choices"}:
        return _choices(place, given["choices"], document)
    low, high = given.get("low"), given.get("high")
    if not (_is_number(low) and _is_number(high) and low < high):
        raise document.error(place, f"{value!r} is no range of numbers", RANGE_REMEDY)
    log = given.get("log", low > 0 and high >= LOG_FROM * low)
    if not isinstance(log, bool) or (log and low <= 0):
        raise document.error(place, f"log: {log!r}", "give true for positive numbers, or false")
    return SearchRange(low, high, log)


def _choices(place: Keys, choices: object, document: Document) -> SearchRange:
    if not (isinstance(choices, list) and len(choices) > 1):
        raise document.error(place, f"choices {choices!r}", "give a list of two or more")
    if not all(isinstance(each, SCALARS) for each in choices):
        raise document.error(place, f"choices {choices!r}", "give single values")
    return SearchRange(choices=tuple(choices))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
