"""The answers of `recl`, `speed`, `truth` and `bench`: in words with numbers, before any table."""

from collections.abc import Iterator
from itertools import combinations

from txlbench.config.base import displayed
from txlbench.records.finding_schema import (
    BenchRecord,
    ReclGroup,
    ReclRecord,
    SpeedRecord,
    SpeedResult,
    TruthRecord,
    TruthRow,
)
from txlbench.reporting.pages.page import Answer, Remark
from txlbench.reporting.recl import above_null, length
from txlbench.reporting.speed import name_of, published_speedups, three_digits, ways_of
from txlbench.reporting.truth import worst

MOST_PAIRS = 6
CLOSE = 0.05
"""A loss within this share of the known one is called close to it."""


def recl_answers(record: ReclRecord) -> tuple[Answer, ...]:
    """For each group how far back each model gains, and which of them differ."""
    groups = tuple(
        Answer(tuple(_recl_remarks(record, each)), _about(each)) for each in record.named_groups()
    )
    remarks = tuple(_over_seeds(record))
    return (Answer(remarks), *groups) if remarks else groups


def _over_seeds(record: ReclRecord) -> Iterator[Remark]:
    """Means of rows that have several seeds, each of which is measured in a group of its own."""
    for share in sorted({each.r for each in record.seeds}, reverse=True):
        rows = [each for each in record.seeds if each.r == share]
        yield Remark(
            f"Over seeds, {share_in_words(share, record.targets)}",
            tuple(
                f"{row.row}: {row.recl[0]:.0f} ± {row.recl[1]:.0f} {record.counted_in}; above the "
                f"null {row.recl_above_null[0]:.0f} ± {row.recl_above_null[1]:.0f} "
                f"({len(row.runs)} seeds)."
                for row in rows
            ),
        )


def recl_lead(record: ReclRecord) -> str:
    """What was measured, in a line."""
    contexts = record.contexts
    tokens = " and ".join(f"{group.tokens:,}" for group in record.groups)
    return (
        f"Each of {tokens} {record.targets} was predicted from {len(contexts)} lengths of context, "
        f"{contexts[0]} to {contexts[-1]} {record.counted_in}; RECL is the longest one up to which "
        f"each step gains at least {100 * record.threshold:g} % of perplexity; above the null, "
        "only steps count that are told from noise. In brackets: 95 % intervals, of these "
        f"{record.targets} only."
    )


def _about(group: ReclGroup) -> str:
    return f"Group {group.name}" if group.name else ""


def _recl_remarks(record: ReclRecord, group: ReclGroup) -> Iterator[Remark]:
    for share in sorted(record.r, reverse=True):
        yield Remark(
            f"On {share_in_words(share, record.targets)}", tuple(_lengths(record, group, share))
        )
    share = max(record.r)
    apart, close = _pairs(group, share)
    if apart:
        yield Remark("Differ", (f"{_some(apart)}.",))
    if close:
        yield Remark(
            "Not resolved",
            (f"Which of two reaches further, as their intervals overlap: {_some(close)}.",),
        )
    if group.warnings:
        yield Remark("Warnings", tuple(f"{warning}." for warning in group.warnings))


def share_in_words(share: float, targets: str) -> str:
    """The hardest share of what was scored: `the hardest 10 % of tokens`."""
    return f"all {targets}" if share == 1 else f"the hardest {100 * share:g} % of {targets}"


def _lengths(record: ReclRecord, group: ReclGroup, share: float) -> Iterator[str]:
    for model in group.models:
        line = group.result(model, share)
        (low, high), (least, most) = line.interval, line.interval_above_null
        paper = "" if line.paper is None else f"; the paper says {line.paper}"
        yield (
            f"{model}: {length(line)} {record.counted_in} [{low}, {high}]; above the null "
            f"{above_null(line, record.contexts[-1])} [{least}, {most}]{paper}."
        )


def _pairs(group: ReclGroup, share: float) -> tuple[list[str], list[str]]:
    """The pairs of models whose intervals above the null lie apart, and the others."""
    apart, close = [], []
    for one, other in combinations(group.models, 2):
        first, second = group.result(one, share), group.result(other, share)
        if first.recl_above_null < second.recl_above_null:
            one, other, first, second = other, one, second, first
        if first.interval_above_null[0] > second.interval_above_null[1]:
            ahead = first.recl_above_null - second.recl_above_null
            apart.append(f"{one} reaches {ahead} further than {other}")
        else:
            close.append(f"{one} and {other}")
    return apart, close


def _some(items: list[str]) -> str:
    more = f"; and {len(items) - MOST_PAIRS} more" if len(items) > MOST_PAIRS else ""
    return f"{'; '.join(items[:MOST_PAIRS])}{more}"


def speed_answers(record: SpeedRecord) -> tuple[Answer, ...]:
    """What each way of reading a model costs at its longest attention length."""
    remarks: dict[str, list[Remark]] = {}
    for way, lines in ways_of(record).items():
        line = list(lines.values())[-1]
        remarks.setdefault(line.model, []).append(_speed_remark(record, way, line))
    answers = [Answer(tuple(found), model) for model, found in remarks.items()]
    if paper := published_speedups(record):
        keys = max(paper)
        sentence = f"{paper[keys]:,.0f} times as fast at {keys:,} keys (Table 9)."
        answers.append(Answer((Remark("The paper", (sentence,)),)))
    return tuple(answers)


def _speed_remark(record: SpeedRecord, way: str, line: SpeedResult) -> Remark:
    ratio = line.speedup
    low, high = (three_digits(each) for each in (ratio.lower_quartile, ratio.upper_quartile))
    sentence = (
        f"{three_digits(1000 * line.seconds_per_token.median)} ms a token at "
        f"{line.attention_length:,} keys"
    )
    if (line.model, line.regime) != (record.baseline, "window"):
        sentence += (
            f": {three_digits(ratio.median)} ({low} to {high}) times as fast as the sliding window "
            f"of {record.baseline}"
        )
    name = way.removeprefix(f"{line.model}, ")
    return Remark(f"{name[:1].upper()}{name[1:]}", (f"{sentence}.",))


def truth_answers(record: TruthRecord) -> tuple[Answer, ...]:
    """How near losses and RECL come to what is known."""
    rows = record.rows
    near = [row for row in rows if _excess(row) <= CLOSE]
    remarks = [
        Remark(
            "Loss",
            (
                f"{len(near)} of {len(rows)} rows come within {CLOSE:.0%} of the least possible "
                "loss in the regime of training.",
                *(f"{row.label}: {_streaming(row)}." for row in rows if row not in near),
            ),
        )
    ]
    for share in sorted(record.r, reverse=True):
        found = {row.label: next(each for each in row.recl if each.r == share) for row in rows}
        right = [label for label, each in found.items() if each.recl_above_null == each.true]
        wrong = [
            f"{label} {each.recl_above_null} instead of {each.true}"
            for label, each in found.items()
            if label not in right
        ]
        sentence = (
            f"Above the null it is that of the known losses in {len(right)} of {len(rows)} rows"
        )
        remarks.append(
            Remark(
                f"RECL on {share_in_words(share, 'tokens')}",
                (f"{sentence}{f': not in {_some(wrong)}' if wrong else ''}.",),
            )
        )
    far = max(rows, key=worst)
    remarks.append(
        Remark(
            "Single contexts",
            (f"At its worst context {far.label} is {worst(far):+.1%} from the known loss.",),
        )
    )
    return (Answer(tuple(remarks)),)


def _excess(row: TruthRow) -> float:
    return row.streaming.loss / row.streaming.optimum - 1


def _streaming(row: TruthRow) -> str:
    loss, known = (displayed(each, "bpc") for each in (row.streaming.loss, row.streaming.optimum))
    return f"{loss:.3f} bpc where {known:.3f} is possible ({_excess(row):+.1%})"


def bench_answers(record: BenchRecord) -> tuple[Answer, ...]:
    """Tokens a second of each workload."""
    return (
        Answer(
            tuple(
                Remark(
                    name_of(result),
                    (
                        f"{result.tokens_per_second.median:,.0f} tokens a second "
                        f"({result.tokens_per_second.min:,.0f} to "
                        f"{result.tokens_per_second.max:,.0f}).",
                    ),
                )
                for result in record.results
            )
        ),
    )
