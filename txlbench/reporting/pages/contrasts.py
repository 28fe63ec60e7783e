"""What each setting does: rows that differ in it and in nothing else, compared and put in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from txlbench.config.base import shown
from txlbench.reporting.comparison import Comparison, Pair
from txlbench.reporting.experiment_results import Results
from txlbench.reporting.pages.page import Remark
from txlbench.reporting.result_table import flat_settings
from txlbench.reporting.rows import TableRow, best_loss
from txlbench.reporting.table import compact

MOST_SENTENCES = 4
"""Sentences about one setting; the table has the rest."""
MOST_VALUES = 6
MOST_PAIRS = 3
"""Pairs of rows whose differences are said one by one; of more the smallest and the largest."""
YES, NO = "yes", "no"

Alike = dict[str, TableRow]
"""Rows that differ in one setting only, by its value in words."""
Rest = tuple[tuple[str, str], ...]
"""The other settings, each with its value in words."""


Compared = Mapping[str, Comparison]
"""The comparison of all rows by each measure, best and init."""


@dataclass(frozen=True)
class Contrast:
    """Two rows that differ in one setting only.

    Attributes:
        compared: the comparison that the result table shows too.
        beside: what the two share and other contrasts of the setting have otherwise.
    """

    row: TableRow
    reference: TableRow
    compared: Compared
    beside: str = ""

    def shift(self, measure: str) -> float:
        """The mean of the row less that of the reference, on the seeds that both have."""
        pair = self._pair(measure)
        assert pair is not None
        assert pair.difference is not None
        return pair.difference if pair.higher == self.row.label else -pair.difference

    def is_known(self, measure: str) -> bool:
        """Whether the two are compared by the measure, as they are in the result table."""
        return self.compared[measure].has(self.row.label, self.reference.label)

    @property
    def scores_the_same_positions(self) -> bool:
        """Whether init is the loss of the same positions of segments; half loss has other ones."""
        found = [
            (outcome.init.measurement.tgt_len, outcome.init.measurement.stride)
            for row in (self.row, self.reference)
            for _, outcome in row.outcomes
        ]
        return len(set(found)) == 1

    def size(self, measure: str, sign: int, unit: str = "") -> str:
        """The shift times `sign` in `unit`, with its interval, and whether it is resolved."""
        pair = self._pair(measure)
        text = shown(sign * self.shift(measure) + 0.0, self.row.unit)  # no minus before zero
        if pair is None or pair.half_width is None:
            return f"{text}{unit}"
        doubts = {"not resolved": ", not resolved", "one seed": " over tokens"}
        half_width = shown(pair.half_width, self.row.unit)
        return f"{text} ± {half_width}{unit}{doubts.get(pair.verdict, '')}"

    def _pair(self, measure: str) -> Pair | None:
        return self.compared[measure].pair(self.row.label, self.reference.label)


def setting_remarks(results: Results, rows: Sequence[TableRow], compared: Compared) -> list[Remark]:
    """A remark for each setting that is the only difference between some rows.

    Those of two values come first, as they are said the most plainly.

    Args:
        rows: what is compared: rows that trained, with numbers in one unit.
    """
    found = _compared(contrasts(results, rows), compared)
    ordered = sorted(found.items(), key=lambda item: not _has_two_values(item[1]))
    return [
        (_two_values if _has_two_values(groups) else _ranked)(key, groups, compared)
        for key, groups in ordered
    ]


def contrasts(results: Results, rows: Sequence[TableRow]) -> dict[str, list[tuple[str, Alike]]]:
    """For each setting the groups of rows that differ in nothing else.

    Returns:
        By dotted key, what the rows of a group share and other groups have otherwise, and the rows.
    """
    settings = {row.label: _given(results, row) for row in rows}
    keys = [
        key
        for key in dict.fromkeys(key for each in settings.values() for key in each)
        if len({each.get(key) for each in settings.values()}) > 1
    ]
    found: dict[str, list[tuple[str, Alike]]] = {}
    for key in keys:
        groups: dict[Rest, Alike] = {}
        for row in rows:
            own = settings[row.label]
            rest = tuple((other, own[other]) for other in keys if other != key)
            groups.setdefault(rest, {}).setdefault(own[key], row)
        several = {rest: alike for rest, alike in groups.items() if len(alike) > 1}
        if several:
            found[key] = [(_beside(rest, several), alike) for rest, alike in several.items()]
    return found


def _compared(
    found: Mapping[str, list[tuple[str, Alike]]], compared: Compared
) -> dict[str, list[tuple[str, Alike]]]:
    """Of each group the best row that is compared with others, and these: what the table holds."""
    kept = {
        key: [(beside, each) for beside, alike in groups if (each := _with_best(alike, compared))]
        for key, groups in found.items()
    }
    return {key: groups for key, groups in kept.items() if groups}


def _with_best(alike: Alike, compared: Compared) -> Alike:
    """The first row, in order of loss, that some others are compared with, and those."""
    order = compared["best"].rows
    for row in sorted(alike.values(), key=lambda row: order.index(row.label)):
        found = {
            value: other
            for value, other in alike.items()
            if other is row or Contrast(other, row, compared).is_known("best")
        }
        if len(found) > 1:
            return found
    return {}


def _given(results: Results, row: TableRow) -> dict[str, str]:
    """What the row has of all settings that the experiment file's rows and grid make, in words."""
    raw = results.experiment.raw
    keys = [key for each in raw.get("rows") or () for key in each.get("set") or {}]
    flat = flat_settings(row)
    return {
        key: _in_words(flat.get(key, flat.get(f"{key}.name")))
        for key in (*(raw.get("grid") or {}), *keys)
    }


def _in_words(value: object) -> str:
    if isinstance(value, bool):
        return YES if value else NO
    return "none" if value is None else str(value)


def _beside(rest: Rest, groups: Mapping[Rest, Alike]) -> str:
    """What sets one group apart from the others: `without recurrence, loss full`."""
    parts = []
    for index, (key, value) in enumerate(rest):
        if len({each[index][1] for each in groups}) > 1:
            switch = {YES: "with ", NO: "without "}.get(value)
            parts.append(f"{switch}{_name(key)}" if switch else f"{_name(key)} {value}")
    return ", ".join(parts)


def _name(key: str) -> str:
    """The last part of a dotted key, in words."""
    return key.rpartition(".")[2].replace("_", " ")


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _has_two_values(groups: Sequence[tuple[str, Alike]]) -> bool:
    """Whether the same two values are compared in every group."""
    values = {tuple(sorted(alike)) for _, alike in groups}
    return len(values) == 1 and len(min(values)) == 2


def _two_values(key: str, groups: Sequence[tuple[str, Alike]], compared: Compared) -> Remark:
    """What the second value does instead of the first, and `yes` instead of `no`."""
    old, new = groups[0][1]
    if (old, new) == (YES, NO):
        old, new = new, old
    pairs = [Contrast(alike[new], alike[old], compared, beside) for beside, alike in groups]
    sentence = _capital(_changes(pairs, "best"))
    if all(pair.scores_the_same_positions and pair.is_known("init") for pair in pairs):
        sentence += f"; in the regime of training (init) {_changes(pairs, 'init')}"
    sentences = [f"{sentence}."]
    counts = {(compact(pair.row.targets), compact(pair.reference.targets)) for pair in pairs}
    if len(counts) == 1 and len(set(min(counts))) == 2:
        own, other = min(counts)
        sentences.append(f"It trains on {own} targets instead of {other}.")
    return Remark(f"{_capital(_name(key))}: {new} instead of {old}", tuple(sentences))


def _changes(pairs: Sequence[Contrast], measure: str) -> str:
    """`lowers the loss by 0.079 bpc (encoding xl) and raises it by ...`."""
    parts = []
    for verb, sign in (("lowers", -1), ("raises", 1)):
        alike = [pair for pair in pairs if (pair.shift(measure) > 0) == (sign > 0)]
        if len(alike) > MOST_PAIRS:
            sizes = sorted(abs(pair.shift(measure)) for pair in alike)
            least, most = (shown(size, alike[0].row.unit) for size in (sizes[0], sizes[-1]))
            found = f"{least} to {most} {alike[0].row.unit} in {len(alike)} of {len(pairs)} pairs"
        else:
            found = " and ".join(
                f"{pair.size(measure, sign, f' {pair.row.unit}')}"
                f"{f' ({pair.beside})' * bool(pair.beside)}"
                for pair in alike
            )
        if alike:
            parts.append(f"{verb} the loss by {found}")
    return ", and ".join(parts)


def _ranked(key: str, groups: Sequence[tuple[str, Alike]], compared: Compared) -> Remark:
    sentences = [_ranking(beside, alike, compared) for beside, alike in groups]
    more = len(sentences) - MOST_SENTENCES
    kept = sentences[:MOST_SENTENCES] + [f"And {more} more comparisons."] * (more > 0)
    return Remark(_capital(_name(key)), tuple(kept))


def _ranking(beside: str, alike: Alike, compared: Compared) -> str:
    """All values, the best first, each with how far it is behind."""
    return f"{_capital(beside) or 'Best first'}: {', '.join(_ranks(alike, compared))}."


def _ranks(alike: Alike, compared: Compared) -> Iterator[str]:
    means = {value: row.mean(best_loss) for value, row in alike.items()}
    known = {value: found.mean for value, found in means.items() if found is not None}
    first, *others = sorted(known, key=known.__getitem__)
    unit = alike[first].unit
    yield f"{first} {shown(known[first], unit)} {unit}"
    for value in others[: MOST_VALUES - 1]:
        yield f"{value} +{Contrast(alike[value], alike[first], compared).size('best', 1)}"
    if len(others) >= MOST_VALUES:
        yield f"and {len(others) - MOST_VALUES + 1} more"
