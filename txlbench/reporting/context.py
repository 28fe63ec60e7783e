"""Use of context: the main table, a line each model, and every value for the CSV file."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from txlbench.records.context_schema import (
    ContextCurve,
    ContextGroup,
    ContextRecord,
    Exponent,
    Interval,
    Missing,
)
from txlbench.reporting.recl import full_source, length
from txlbench.reporting.table import EMPTY, Column, Table, enumerated

Lines = Sequence[tuple[ContextGroup, str]]
"""A line of a table: a model in its group."""
NOT_AVAILABLE = "not available"


def in_unit(found: Interval, unit: str) -> Interval:
    """Nats as bits where losses are those of characters or bytes."""
    scale = 1.0 if unit == "ppl" else 1 / math.log(2)
    low, high = found.low, found.high
    return Interval(
        value=found.value * scale,
        low=None if low is None else low * scale,
        high=None if high is None else high * scale,
    )


def unit_of_loss(unit: str) -> str:
    return "nats" if unit == "ppl" else "bits"


def with_interval(found: Interval | None, form: str = ".3f") -> str:
    """A value with its interval in brackets; empty without a value."""
    if found is None:
        return EMPTY
    if found.low is None or found.high is None:
        return format(found.value, form)
    return f"{found.value:{form}} [{found.low:{form}}, {found.high:{form}}]"


def model_columns(lines: Lines) -> list[Column]:
    return [
        Column("group", tuple(group.name for group, _ in lines)),
        Column("model", tuple(model for _, model in lines)),
    ]


def filled_table(
    record: ContextRecord, title: str, columns: Sequence[Column], footer: Sequence[str] = ()
) -> Table:
    """A table without the columns that are empty in every row."""
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, tuple(footer), full_source(record), title)


def context_table(record: ContextRecord) -> Table:
    """Each model's use of context in a line; measures that are missing say so below."""
    lines = [(group, model) for group in record.named_groups() for model in group.models]
    unit, first, last = unit_of_loss(record.unit), record.contexts[0], record.contexts[-1]

    def column(header: str, cell: Callable[[ContextGroup, str], str]) -> Column:
        return Column(header, tuple(cell(group, model) for group, model in lines), is_number=True)

    def of_curve(cell: Callable[[ContextCurve], str]) -> Callable[[ContextGroup, str], str]:
        return lambda group, model: cell(group.curve(model))

    def recl_of(share: float) -> Callable[[ContextGroup, str], str]:
        return lambda group, model: _recl(record, group, model, share)

    columns = [
        *model_columns(lines),
        column("ECL", of_curve(lambda curve: with_interval(curve.ecl, ".0f"))),
        *(column(f"RECL r={share:g}", recl_of(share)) for share in _shares(record)),
        column(
            f"gain {first} to {last} ({unit})",
            of_curve(lambda curve: with_interval(in_unit(curve.gain, record.unit))),
        ),
        column(
            "harmed tokens",
            of_curve(
                lambda curve: with_interval(curve.harm[-1].harmed, ".1%") if curve.harm else EMPTY
            ),
        ),
        column("power law beta", _beta),
        column("L²M exponent", _exponent),
        column("key tokens", _keys),
        column("LongPPL", lambda group, model: _longppl(group, model, group.best)),
    ]
    return filled_table(record, "Use of context", columns, list(explanations(record)))


def _shares(record: ContextRecord) -> Sequence[float]:
    return record.recl.r if record.recl else ()


def _recl(record: ContextRecord, group: ContextGroup, model: str, share: float) -> str:
    """The paper's RECL; above the null in brackets where it is another."""
    if record.recl is None:
        return EMPTY
    home = next(each for each in record.recl.groups if each.models == group.models)
    line = home.result(model, share)
    above = line.recl_above_null
    return length(line) if above == line.recl else f"{length(line)} (above null {above})"


def _beta(group: ContextGroup, model: str) -> str:
    found = next((each.beta for each in group.power_laws if each.model == model), None)
    return with_interval(found, ".2f") or NOT_AVAILABLE


def exponent_of(group: ContextGroup, model: str) -> Exponent | None:
    """The exponent of a model, corrected where the text allows; None without any."""
    if group.mutual_information is None:
        return None
    own = [each for each in group.mutual_information.exponents if each.model == model]
    return own[-1] if own and own[-1].exponent is not None else None


def _exponent(group: ContextGroup, model: str) -> str:
    found = exponent_of(group, model)
    return with_interval(found.exponent, ".2f") if found else NOT_AVAILABLE


def _keys(group: ContextGroup, model: str) -> str:
    own = [each for each in group.key_tokens if each.model == each.chosen_by == model]
    return with_interval(own[0].net, ".2%") if own else NOT_AVAILABLE


def _longppl(group: ContextGroup, model: str, chooser: str) -> str:
    own = [e for e in group.key_tokens if (e.model, e.chosen_by) == (model, chooser)]
    return with_interval(own[0].longppl, ".2f") if own and own[0].longppl else NOT_AVAILABLE


def explanations(record: ContextRecord) -> Iterator[str]:
    """How the numbers came about, and which are missing."""
    yield (
        "In brackets: 2.5 to 97.5 % of 1,000 resamples of blocks of tokens, the same for every "
        "measure. They cover the sampling of tokens only, neither training seeds nor the choice "
        "of a text."
    )
    yield (
        "ECL: the shortest context from which on perplexity is within "
        f"{record.threshold:.0%} of the best. Harmed tokens: those whose loss is more than 0.1 "
        f"nats higher at context {record.contexts[-1]} than at {record.contexts[0]}. Power "
        "law: m(c) = (alpha/c)^beta + gamma. Key tokens: LSD above 2 and LCL above -2 by the "
        "model itself, less the share with both contexts exchanged, which noise gives; LongPPL "
        "over those of the group's best model."
    )
    for group in record.named_groups():
        place = f" of group {group.name}" if group.name else ""
        for missing in group.missing:
            yield f"{missing_line(missing, place)}."
    if record.recl_missing:
        yield f"RECL: {NOT_AVAILABLE}: {record.recl_missing}."


def missing_line(missing: Missing, place: str = "") -> str:
    """A measure, and why it is not available."""
    models = f" of {enumerated(missing.models)}" if missing.models else place
    return f"{missing.measure}{models}: {NOT_AVAILABLE}: {missing.reason}"


def context_lines(record: ContextRecord) -> Iterator[Mapping[str, object]]:
    """The lines of the CSV file: every value with its interval, losses in nats."""
    for group in record.named_groups():
        for measure, model, at, found in _values(group, record.contexts):
            yield {
                "group": group.name,
                "measure": measure,
                "model": model,
                "at": at,
                "value": found.value,
                "low": found.low,
                "high": found.high,
                "commit": record.commit,
                "command": record.command,
            }


Measured = tuple[str, str, str, Interval]
"""Measure, model, where it was taken, and the value."""


def _values(group: ContextGroup, contexts: Sequence[int]) -> Iterator[Measured]:
    for curve in group.curves:
        yield "ecl", curve.model, EMPTY, curve.ecl
        yield "gain_nats", curve.model, EMPTY, curve.gain
        for name, values in (("loss_nats", curve.losses), ("above_best_nats", curve.above_best)):
            for context, found in zip(contexts, values, strict=True):
                yield name, curve.model, str(context), found
        for harm in curve.harm:
            step = f"{harm.shorter} to {harm.longer}"
            yield "harmed_share", curve.model, step, harm.harmed
            yield "helped_share", curve.model, step, harm.helped
            yield "cost_nats", curve.model, step, harm.cost
            yield "gained_nats", curve.model, step, harm.gain
    for law in group.power_laws:
        for name in ("alpha", "beta", "gamma", "four_times"):
            yield f"power_law_{name}", law.model, EMPTY, getattr(law, name)
    for score in group.icl_scores:
        yield "icl_score_nats", score.model, f"{score.shorter} to {score.longer}", score.score
    for each in group.information:
        yield "v_information_nats", EMPTY, f"{each.shorter} to {each.longer}", each.nats
    for tokens in group.classes:
        for line in tokens.curves:
            yield "class_gain_nats", line.model, f"{tokens.kind}: {tokens.name}", line.gain
            yield "class_ecl", line.model, f"{tokens.kind}: {tokens.name}", line.ecl
    for key in group.key_tokens:
        yield "key_share", key.model, f"by {key.chosen_by}", key.share
        if key.longppl is not None:
            yield "longppl", key.model, f"by {key.chosen_by}", key.longppl
    if group.mutual_information is not None:
        for exponent in group.mutual_information.exponents:
            if exponent.exponent is not None:
                yield "l2m_exponent", exponent.model, exponent.way, exponent.exponent
            for size, nats in zip(exponent.lengths, exponent.nats, strict=True):
                yield f"l2m_nats_{exponent.way}", exponent.model, str(size), nats
