"""What a comparison of rows has shown: each pair's difference and verdict, in numbers and words."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from txlbench.config.base import shown
from txlbench.reporting.paired import LEVEL
from txlbench.reporting.table import EMPTY, Column, Table, enumerated

Verdict = Literal["resolved", "not resolved", "one seed", "not compared"]
MOST_NAMED = 3


class Pair(BaseModel):
    """Two rows, compared.

    Attributes:
        lower, higher: their labels, that of the lower mean loss first.
        difference: of the means over `seeds`, higher - lower, in the unit of the comparison.
        half_width: of its 95 % interval, for this pair alone.
        seeds: those that both have.
        covers_tokens: whether the interval covers the sampling of test tokens.
        p: of the paired test; None for one seed, which says nothing of training.
        p_holm: adjusted for the number of pairs.
        seeds_needed: the fewest seeds that would resolve it, if difference and spread stay; None
            if it is resolved, if one seed cannot tell, or if no number would.
        reason: why they are not compared; else empty.
    """

    model_config = ConfigDict(frozen=True)

    lower: str
    higher: str
    verdict: Verdict
    difference: float | None = None
    half_width: float | None = None
    seeds: tuple[int, ...] = ()
    covers_tokens: bool = False
    p: float | None = None
    p_holm: float | None = None
    seeds_needed: int | None = None
    reason: str = ""

    @property
    def labels(self) -> frozenset[str]:
        return frozenset((self.lower, self.higher))


class Comparison(BaseModel):
    """All pairs of rows by one loss, `best` or `init`.

    Attributes:
        rows: labels of the rows that have results and trained, the lowest mean first.
        means: their means over all their seeds, in `unit`.
        left_out: the others, and seeds without a result, each with what became of it.
        winner: the row that beats every other row, if one does.
    """

    model_config = ConfigDict(frozen=True)

    measure: str
    unit: str
    rows: tuple[str, ...]
    means: tuple[float, ...]
    pairs: tuple[Pair, ...]
    left_out: tuple[str, ...] = ()
    winner: str | None = None

    @property
    def content(self) -> dict[str, object]:
        """All of it as plain data, led by the headline."""
        return {"headline": self.headline, **self.model_dump(mode="json")}

    def pair(self, one: str, other: str) -> Pair | None:
        """The pair of two rows; None if one of them is not compared at all."""
        return next((pair for pair in self.pairs if pair.labels == {one, other}), None)

    def has(self, one: str, other: str) -> bool:
        """Whether the two rows are compared, with a difference."""
        pair = self.pair(one, other)
        return pair is not None and pair.difference is not None

    @property
    def tested(self) -> int:
        """Pairs that were tested, which Holm's correction counts."""
        return sum(pair.p is not None for pair in self.pairs)

    def sentence(self, pair: Pair) -> str:
        """What is known of a pair, in one sentence."""
        lower, higher, amount = pair.lower, pair.higher, self.amount(pair)
        if pair.verdict == "not compared":
            return f"{lower} and {higher} are not compared: {pair.reason}"
        if pair.verdict == "not resolved":
            return f"{lower} and {higher}: {amount}; {self.outcome(pair)}"
        verb = "beats" if pair.verdict == "resolved" else "is below"
        return f"{lower} {verb} {higher} by {amount}"

    def outcome(self, pair: Pair) -> str:
        """The verdict, and what would help."""
        if pair.verdict == "not compared":
            return f"not compared: {pair.reason}"
        if pair.verdict != "not resolved":
            return pair.verdict
        if pair.seeds_needed is None:
            return "not resolved; no number of seeds would on these tokens"
        return f"not resolved; {pair.seeds_needed} seeds would, if difference and spread stay"

    def amount(self, pair: Pair) -> str:
        """The difference with its interval, unit and seeds: `0.081 ± 0.012 bpc (3 seeds)`."""
        if pair.difference is None:
            return ""
        width = "" if pair.half_width is None else f" ± {shown(pair.half_width, self.unit)}"
        n = len(pair.seeds)
        covered = f"{n} seeds" if pair.covers_tokens else f"{n} seeds, over seeds alone"
        if n == 1:
            covered = f"1 seed, {'over tokens alone' if pair.covers_tokens else 'no interval'}"
        return f"{shown(pair.difference, self.unit)}{width} {self.unit} ({covered})"

    @property
    def headline(self) -> str:
        """The comparison in one sentence, about the row with the lowest loss."""
        if not self.rows:
            return "No row has results that can be compared."
        first, mean = self.rows[0], f"{shown(self.means[0], self.unit)} {self.unit} {self.measure}"
        if len(self.rows) == 1:
            return f"{first} is the only row with results: {mean}."
        every = [found for label in self.rows[1:] if (found := self.pair(first, label))]
        pairs = [pair for pair in every if pair.verdict != "not compared"]
        nearest = min(pairs, key=_nearness, default=None)
        if nearest is not None and self.winner == first:
            whom = f"each of the {len(pairs)} other rows, the nearest, " if len(pairs) > 1 else ""
            holm_over = f", Holm over {self.tested} pairs" if self.tested > 1 else ""
            amount = self.amount(nearest).removesuffix(")")
            return f"{first} ({mean}) beats {whom}{nearest.higher}, by {amount}{holm_over})."
        doubts = [*self._open(first, pairs, nearest), *_refused(first, every)]
        return f"{first} has the lowest loss ({mean}), but {'; '.join(doubts)}."

    def _open(self, first: str, pairs: Sequence[Pair], nearest: Pair | None) -> Iterator[str]:
        """Which of the rows that are compared with it the first one does not beat."""
        open_ = [pair for pair in pairs if pair.verdict != "resolved" or pair.lower != first]
        if nearest is None or not open_:
            return
        if nearest.verdict == "one seed":
            yield (
                f"with one seed no row is said to win: {_other(nearest, first)} is higher by "
                f"{self.amount(nearest)}"
            )
            return
        text = f"does not beat {_listed([_other(pair, first) for pair in open_])}: "
        text += self.amount(nearest)
        yield text + (f", {self.outcome(nearest)}" if nearest.verdict == "not resolved" else "")


def _refused(first: str, pairs: Sequence[Pair]) -> Iterator[str]:
    """With which rows the first one is not compared, by reason."""
    for reason in dict.fromkeys(pair.reason for pair in pairs if pair.verdict == "not compared"):
        names = [_other(pair, first) for pair in pairs if pair.reason == reason]
        yield f"is not compared with {_listed(names)}: {reason}"


def _nearness(pair: Pair) -> tuple[bool, float]:
    """Unresolved pairs first, then the smallest difference."""
    return pair.verdict == "resolved", pair.difference or 0.0


def _other(pair: Pair, label: str) -> str:
    return pair.higher if pair.lower == label else pair.lower


def _listed(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMED + 1:
        return f"{enumerated(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    if any("," in name for name in names):
        return enumerated(names)
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def pair_table(compared: Comparison) -> Table:
    """A line for each pair, the row of the lowest loss first."""
    pairs = compared.pairs
    p = tuple("" if pair.p_holm is None else f"{pair.p_holm:.2g}" for pair in pairs)
    columns = (
        Column("lower loss", tuple(pair.lower for pair in pairs)),
        Column("higher loss", tuple(pair.higher for pair in pairs)),
        Column("difference", tuple(map(compared.amount, pairs)), is_number=True),
        Column("p, Holm", p, is_number=True),
        Column("verdict", tuple(map(compared.outcome, pairs))),
    )
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, (), EMPTY, f"Pairs of rows by {compared.measure}")


def explained(found: Mapping[tuple[str, str], Comparison], reference: str) -> list[str]:
    """Sentences below a table: what it shows, and what ± and the marks mean.

    Args:
        reference: the label of the row to which differences are shown.
    """
    every = [pair for each in found.values() for pair in each.pairs]
    seen = [pair for pair in every if pair.half_width is not None]
    lines = [each.headline for (_, name), each in found.items() if name == "best" and each.pairs]
    several = [pair for pair in seen if len(pair.seeds) > 1]
    if several:
        lines.append("± of a mean: 95 % t-interval over seeds, without the sampling of tokens.")
    if seen:
        over = ["seeds"] * bool(several) + ["tokens"] * any(pair.covers_tokens for pair in seen)
        lines.append(
            f"Δ: difference to '{reference}' on the seeds and tokens that both have, ± its 95 % "
            f"interval over {' and '.join(over)}."
        )
    if several:
        count = max(each.tested for each in found.values())
        lines.append(
            f"Not resolved: p above {LEVEL:g}, corrected for {count} pair{'s' * (count > 1)} "
            "(Holm). * beats every other row."
        )
    if any(pair.verdict == "one seed" for pair in every):
        lines.append("One seed: training variation is not covered, so no difference is resolved.")
    left_out = dict.fromkeys(name for each in found.values() for name in each.left_out)
    if left_out and every:
        lines.append(f"Not compared: {enumerated(left_out)}.")
    refused = {pair.reason: pair for pair in every if pair.reason}
    lines += [f"{p.lower} and {p.higher} are not compared: {p.reason}." for p in refused.values()]
    return lines
