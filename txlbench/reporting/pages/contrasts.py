"""What each setting does: rows that differ in it and in nothing else, compared and put in words."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from txlbench.config.base import shown
from txlbench.reporting.experiment_results import Results
from txlbench.reporting.pages.page import Remark
from txlbench.reporting.result_table import flat_settings
from txlbench.reporting.rows import (
    Estimate,
    Loss,
    TableRow,
    best_loss,
    init_loss,
    paired_difference,
)
from txlbench.reporting.table import compact

MOST_SENTENCES = 4
"""Sentences about one setting; the table has the rest."""
MOST_VALUES = 6
YES, NO = "yes", "no"

Alike = dict[str, TableRow]
"""Rows that differ in one setting only, by its value in words."""
Rest = tuple[tuple[str, str], ...]
"""The other settings, each with its value in words."""


@dataclass(frozen=True)
class Contrast:
    """Two rows that differ in one setting only.

    Attributes:
        beside: what the two share and other contrasts of the setting have otherwise.
    """

    row: TableRow
    reference: TableRow
    beside: str = ""

    def shift(self, loss: Loss) -> Estimate:
        """The row less the reference, paired by seed; of fewer than two seeds without interval."""
        found = paired_difference(self.row.values(loss), self.reference.values(loss))
        if found is not None:
            return found
        one, other = self.row.mean(loss), self.reference.mean(loss)
        assert one is not None
        assert other is not None
        return Estimate(one.mean - other.mean, None, 1)

    @property
    def scores_the_same_positions(self) -> bool:
        """Whether init is the loss of the same positions of segments; half loss has other ones."""
        found = [
            (outcome.init.measurement.tgt_len, outcome.init.measurement.stride)
            for row in (self.row, self.reference)
            for _, outcome in row.outcomes
        ]
        return len(set(found)) == 1

    def size(self, loss: Loss, sign: int) -> str:
        """The shift times `sign`, with its interval, and whether that leaves 0 out."""
        found, unit = self.shift(loss), self.row.unit
        text = shown(sign * found.mean, unit)
        if found.half_width is None:
            return text
        doubt = "" if found.is_resolved else ", not resolved"
        return f"{text} ± {shown(found.half_width, unit)}{doubt}"


def setting_remarks(results: Results, rows: Sequence[TableRow]) -> list[Remark]:
    """A remark for each setting that is the only difference between some rows.

    Those of two values come first, as they are said the most plainly.

    Args:
        rows: what is compared: rows with numbers in one unit.
    """
    found = contrasts(results, rows)
    ordered = sorted(found.items(), key=lambda item: not _has_two_values(item[1]))
    return [
        _two_values(key, groups) if _has_two_values(groups) else _ranked(key, groups)
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


def _two_values(key: str, groups: Sequence[tuple[str, Alike]]) -> Remark:
    """What the second value does instead of the first, and `yes` instead of `no`."""
    old, new = groups[0][1]
    if (old, new) == (YES, NO):
        old, new = new, old
    pairs = [Contrast(alike[new], alike[old], beside) for beside, alike in groups]
    sentence = _capital(_changes(pairs, best_loss))
    if all(pair.scores_the_same_positions for pair in pairs):
        sentence += f"; in the regime of training (init) {_changes(pairs, init_loss)}"
    sentences = [f"{sentence}."]
    counts = {(compact(pair.row.targets), compact(pair.reference.targets)) for pair in pairs}
    if len(counts) == 1 and len(set(min(counts))) == 2:
        own, other = min(counts)
        sentences.append(f"It trains on {own} targets instead of {other}.")
    return Remark(f"{_capital(_name(key))}: {new} instead of {old}", tuple(sentences))


def _changes(pairs: Sequence[Contrast], loss: Loss) -> str:
    """`lowers the loss by 0.079 bpc (encoding xl) and raises it by ...`."""
    parts = []
    for verb, sign in (("lowers", -1), ("raises", 1)):
        alike = [pair for pair in pairs if (pair.shift(loss).mean > 0) == (sign > 0)]
        sizes = [
            f"{pair.size(loss, sign)} {pair.row.unit}{f' ({pair.beside})' * bool(pair.beside)}"
            for pair in alike
        ]
        more = len(sizes) - MOST_VALUES
        kept = sizes[:MOST_VALUES] + [f"{more} more such"] * (more > 0)
        if sizes:
            parts.append(f"{verb} the loss by {' and '.join(kept)}")
    return ", and ".join(parts)


def _ranked(key: str, groups: Sequence[tuple[str, Alike]]) -> Remark:
    sentences = [_ranking(beside, alike) for beside, alike in groups]
    more = len(sentences) - MOST_SENTENCES
    kept = sentences[:MOST_SENTENCES] + [f"And {more} more comparisons."] * (more > 0)
    return Remark(_capital(_name(key)), tuple(kept))


def _ranking(beside: str, alike: Alike) -> str:
    """All values, the best first, each with how far it is behind."""
    return f"{_capital(beside) or 'Best first'}: {', '.join(_ranks(alike))}."


def _ranks(alike: Alike) -> Iterator[str]:
    means = {value: row.mean(best_loss) for value, row in alike.items()}
    known = {value: found.mean for value, found in means.items() if found is not None}
    first, *others = sorted(known, key=known.__getitem__)
    unit = alike[first].unit
    yield f"{first} {shown(known[first], unit)} {unit}"
    for value in others[: MOST_VALUES - 1]:
        yield f"{value} +{Contrast(alike[value], alike[first]).size(best_loss, 1)}"
    if len(others) >= MOST_VALUES:
        yield f"and {len(others) - MOST_VALUES + 1} more"
