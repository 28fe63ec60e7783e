"""Compares every pair of rows on the seeds and the tokens that both have.

Claims are corrected for the number of pairs by Holm's method. Rows that scored different tokens are
not paired.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from txlbench.config.base import displayed
from txlbench.records.schema import EvaluationRecord
from txlbench.reporting.comparison import Comparison, Pair, Verdict
from txlbench.reporting.experiment_results import Results, RunResult
from txlbench.reporting.paired import LEVEL, PairedDifference, holm, paired_difference
from txlbench.reporting.rows import LOSSES, TableRow, build_rows, units


def comparisons(results: Results) -> dict[tuple[str, str], Comparison]:
    """Every comparison of an experiment, by unit and measure."""
    rows = build_rows(results)
    return {
        (unit, measure): compare([row for row in rows if row.unit == unit], measure)
        for unit in units(rows)
        for measure in LOSSES
    }


def headline(results: Results, measure: str = "best") -> str:
    """What the experiment has shown, in one sentence for each unit of loss."""
    found = comparisons(results)
    return " ".join(each.headline for (_, name), each in found.items() if name == measure)


def compare(rows: Sequence[TableRow], measure: str) -> Comparison:
    """Compares every pair of `rows`, whose losses have one unit, by `measure`: init or best."""
    found = [row for row in rows if row.scored and row.did_train]
    means = {row.label: row.mean(LOSSES[measure]) for row in found}
    order = sorted(found, key=lambda row: mean.mean if (mean := means[row.label]) else math.inf)
    drafts = [_Draft.of(one, other, measure) for one, other in combinations(order, 2)]
    pairs = tuple(_with_verdicts(drafts))
    first = order[0].label if order else None
    rivals = [pair for pair in pairs if first in pair.labels]
    won = rivals and all(pair.verdict == "resolved" and pair.lower == first for pair in rivals)
    return Comparison(
        measure=measure,
        unit=rows[0].unit,
        rows=tuple(row.label for row in order),
        means=tuple(mean.mean for row in order if (mean := means[row.label])),
        pairs=pairs,
        left_out=tuple(_left_out(rows)),
        winner=first if won else None,
    )


def _left_out(rows: Sequence[TableRow]) -> Iterator[str]:
    for row in rows:
        if not (row.scored and row.did_train):
            yield f"{row.label} ({row.state})"
        else:
            for run in row.runs:
                if run not in row.counted:
                    state = "did not train" if run.outcome else run.state
                    yield f"seed {run.config.seed} of {row.label} ({state})"


@dataclass(frozen=True)
class _Draft:
    """A pair before all pairs are known: what was measured, or why nothing was."""

    one: str
    other: str
    seeds: tuple[int, ...] = ()
    difference: PairedDifference | None = None
    reason: str = ""

    @classmethod
    def of(cls, one: TableRow, other: TableRow, measure: str) -> "_Draft":
        """The difference other - one on the seeds that both have."""
        runs = [{run.config.seed: run for run in row.counted} for row in (one, other)]
        seeds = tuple(sorted(runs[0].keys() & runs[1].keys()))
        labels = one.label, other.label
        if not seeds:
            return cls(*labels, reason="they have no seed in common")
        paired = [(runs[0][seed], runs[1][seed]) for seed in seeds]
        for a, b in paired:
            if reason := _why_not(a, b, measure):
                return cls(*labels, seeds, reason=reason)
        values = [(_Values.of(a, measure), _Values.of(b, measure)) for a, b in paired]
        totals = [b.total - a.total for a, b in values]
        if not all(map(math.isfinite, totals)):
            return cls(*labels, seeds, reason="a loss is too large to be shown")
        blocks = [
            b.blocks - a.blocks for a, b in values if a.blocks is not None and b.blocks is not None
        ]
        whole = np.stack(blocks) if len(blocks) == len(values) else None
        return cls(*labels, seeds, paired_difference(totals, whole))


def _why_not(one: RunResult, other: RunResult, measure: str) -> str:
    """Why the losses of two runs are not of the same tokens; empty if they are."""
    a, b = _record(one, measure), _record(other, measure)
    if one.config.corpus.resolved_level != other.config.corpus.resolved_level:
        return "their tokens are of different kinds"
    if not _is_same_text(one, other):
        return "they were measured on different texts"
    if a.measurement.split != b.measurement.split:
        return f"scored on {a.measurement.split} and on {b.measurement.split}"
    if a.tokens != b.tokens:
        return f"scored on {a.tokens:,} and on {b.tokens:,} tokens"
    if a.blocks is not None and b.blocks is not None:
        is_same = a.blocks.targets == b.blocks.targets
    else:  # records of earlier versions: what the choice of tokens follows from
        is_same = _choice(a) == _choice(b)
    return "" if is_same else f"scored on different {a.tokens:,} tokens of {a.measurement.split}"


def _is_same_text(one: RunResult, other: RunResult) -> bool:
    """By checksum where both have it, else by name: a lost `facts.json` is no other text."""
    checksums = [run.facts.corpus.checksum for run in (one, other)]
    if all(checksums):
        return checksums[0] == checksums[1]
    return one.config.corpus.name == other.config.corpus.name


def _choice(record: EvaluationRecord) -> tuple[object, ...]:
    asked = record.measurement
    return (asked.tokens, asked.batch_size if asked.tokens else None)


def _record(run: RunResult, measure: str) -> EvaluationRecord:
    assert run.outcome is not None
    record = getattr(run.outcome, measure)
    assert isinstance(record, EvaluationRecord)
    return record


@dataclass(frozen=True)
class _Values:
    """A run's loss as displayed, and by block of the text.

    Perplexity is no mean over tokens, so its blocks are linear in their losses: their mean is the
    perplexity, and their spread gives its standard error (delta method).
    """

    total: float
    blocks: NDArray[np.float64] | None

    @classmethod
    def of(cls, run: RunResult, measure: str) -> "_Values":
        record, unit = _record(run, measure), run.unit
        total = displayed(record.loss, unit)
        if record.blocks is None or not math.isfinite(total):
            return cls(total, None)
        slope = total if unit == "ppl" else displayed(1.0, unit)
        return cls(total, total + slope * (np.array(record.blocks.losses) - record.loss))


def _with_verdicts(drafts: Sequence[_Draft]) -> Iterator[Pair]:
    """The pairs, tested together."""
    tests = {index: draft.difference.p for index, draft in enumerate(drafts) if draft.difference}
    known = {index: p for index, p in tests.items() if p is not None}
    adjusted = dict(zip(known, holm(list(known.values())), strict=True))
    unresolved = sum(p > LEVEL for p in adjusted.values())
    for index, draft in enumerate(drafts):
        yield _pair(draft, known.get(index), adjusted.get(index), LEVEL / max(1, unresolved))


def _pair(draft: _Draft, p: float | None, p_holm: float | None, level: float) -> Pair:
    """A draft with its verdict.

    Args:
        level: that a pair which is not resolved must reach.
    """
    found = draft.difference
    labels = {"lower": draft.one, "higher": draft.other}
    if found is None:
        return Pair(**labels, verdict="not compared", seeds=draft.seeds, reason=draft.reason)
    if found.mean < 0:
        labels = {"lower": draft.other, "higher": draft.one}
    verdict: Verdict = "one seed"
    if p_holm is not None:
        verdict = "resolved" if p_holm <= LEVEL else "not resolved"
    return Pair(
        **labels,
        verdict=verdict,
        difference=abs(found.mean),
        half_width=found.half_width(),
        seeds=draft.seeds,
        covers_tokens=found.token_variance is not None,
        p=p,
        p_holm=p_holm,
        seeds_needed=found.seeds_needed(level) if verdict == "not resolved" else None,
    )
