"""How much context a model uses, what for, and what is not resolved: in words, with numbers."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

from txlbench.records.context_schema import (
    ClassCurve,
    ContextGroup,
    ContextRecord,
    Interval,
    TokenClass,
)
from txlbench.reporting.context import (
    exponent_of,
    in_unit,
    missing_line,
    unit_of_loss,
    with_interval,
)
from txlbench.reporting.recl import above_null, length

NORMAL = NormalDist()
ALL_RESOLVED = "Nothing of what was measured for it alone."
MOST_CLASSES = 2
"""Classes of tokens that are named as what context is used for."""


@dataclass(frozen=True)
class Verdict:
    """What there is to say of one model, as sentences.

    Attributes:
        amount: how much context it uses.
        purpose: what for.
        unresolved: what these tokens do not tell.
    """

    model: str
    group: str
    amount: tuple[str, ...]
    purpose: tuple[str, ...]
    unresolved: tuple[str, ...]


def verdicts(record: ContextRecord) -> list[Verdict]:
    """One for each model."""
    return [
        Verdict(
            model,
            group.name,
            tuple(_amount(record, group, model)),
            tuple(_purpose(record, group, model)),
            tuple(_unresolved(record, group, model)) or (ALL_RESOLVED,),
        )
        for group in record.named_groups()
        for model in group.models
    ]


def _loss(found: Interval, record: ContextRecord) -> str:
    """Nats in the unit that is shown, with the interval."""
    return f"{with_interval(in_unit(found, record.unit))} {unit_of_loss(record.unit)}"


def _negated(found: Interval) -> Interval:
    low, high = found.low, found.high
    return Interval(
        value=-found.value,
        low=None if high is None else -high,
        high=None if low is None else -low,
    )


def _is_clear(found: Interval, tests: int) -> bool:
    """Whether a value of one of several classes is apart from 0 by a Bonferroni-corrected test."""
    if found.low is None or found.high is None:
        return False
    error = (found.high - found.low) / (2 * NORMAL.inv_cdf(0.975))
    return abs(found.value) > NORMAL.inv_cdf(1 - 0.025 / max(1, tests)) * error


def _amount(record: ContextRecord, group: ContextGroup, model: str) -> Iterator[str]:
    curve, first, last = group.curve(model), record.contexts[0], record.contexts[-1]
    if _is_bounded(record, group, model):
        longest = dict(zip(group.models, group.longest, strict=True))[model]
        yield (
            f"It can use no more than {longest} {record.counted_in}, and was measured from "
            f"{first} on."
        )
        return
    bound = "At most " if curve.ecl.value <= first else ""
    yield (
        f"{bound}{with_interval(curve.ecl, '.0f')} {record.counted_in}: from there on perplexity "
        f"is within {record.threshold:.0%} of its best (ECL)."
    )
    if record.recl is not None:
        home = next(each for each in record.recl.groups if each.models == group.models)
        share = max(record.recl.r)
        line = home.result(model, share)
        yield (
            f"RECL over {_tokens(share, record.targets)}: {length(line)}, above the null "
            f"{above_null(line, last)}."
        )
    gain = curve.gain
    if gain.is_resolved:
        change = "falls" if gain.value > 0 else "rises"
        size = gain if gain.value > 0 else _negated(gain)
        yield f"From {first} to {last} its loss {change} by {_loss(size, record)}."
    if curve.excess.is_resolved and curve.best_context != first:
        yield f"From {curve.best_context} on it rises, by {_loss(curve.excess, record)}."
    law = next((each for each in group.power_laws if each.model == model), None)
    if law is not None and law.four_times.is_resolved:
        yield (
            f"By its power law (beta {with_interval(law.beta, '.2f')}), {4 * last:,} "
            f"{record.counted_in} would save another {_loss(law.four_times, record)}."
        )


def _tokens(share: float, targets: str) -> str:
    return f"all {targets}" if share == 1 else f"the hardest {share:.0%} of {targets}"


def _purpose(record: ContextRecord, group: ContextGroup, model: str) -> Iterator[str]:
    if _is_bounded(record, group, model):
        return
    gains = [
        (each, curve)
        for each in group.classes
        for curve in each.curves
        if curve.model == model and _is_clear(curve.gain, len(group.classes))
    ]
    helped = sorted(
        (found for found in gains if found[1].gain.value > 0),
        key=lambda found: -found[1].gain.value,
    )
    named: dict[str, str] = {}
    for each, curve in helped:
        if len(named) < MOST_CLASSES:
            named.setdefault(each.kind, _class_gain(each, curve, record))
    if named:
        yield f"Most for tokens {'; '.join(named.values())}."
    elif group.classes:
        yield "No class of tokens gains beyond the scatter of its tokens."
    elif why := group.why_missing("classes of tokens", model):
        yield f"Not known: {why}."
    worst = min(
        (found for found in gains if found[1].gain.value < 0),
        key=lambda found: found[1].gain.value,
        default=None,
    )
    if worst is not None:
        each, curve = worst
        yield f"It costs tokens {each.name} {_loss(_negated(curve.gain), record)}."
    own = [key for key in group.key_tokens if key.model == key.chosen_by == model]
    if own and own[0].net.is_resolved and own[0].net.value > 0:
        yield (
            f"{with_interval(own[0].net, '.2%')} of tokens, beyond chance, need the long context "
            "(key tokens)."
        )
    found = exponent_of(group, model)
    if found is not None and found.exponent is not None:
        yield (
            "What it knows of the text ahead grows as length to the power of "
            f"{with_interval(found.exponent, '.2f')} (L²M)."
        )


def _class_gain(each: TokenClass, curve: ClassCurve, record: ContextRecord) -> str:
    return f"{each.name} ({_loss(curve.gain, record)})"


def _is_bounded(record: ContextRecord, group: ContextGroup, model: str) -> bool:
    """Whether the model can use no more than the first context, so that nothing was measured."""
    longest = dict(zip(group.models, group.longest, strict=True))[model]
    return longest is not None and longest <= record.contexts[0]


def _unresolved(record: ContextRecord, group: ContextGroup, model: str) -> Iterator[str]:
    gain = group.curve(model).gain
    if not gain.is_resolved and not _is_bounded(record, group, model):
        yield (
            f"Whether {record.contexts[-1]} {record.counted_in} are better than "
            f"{record.contexts[0]}: "
            f"{_loss(gain, record)}."
        )
    above = group.curve(model).above_best[-1]
    if model != group.best and not above.is_resolved:
        yield f"Whether it is worse than {group.best} at context {record.contexts[-1]}."
    for missing in group.missing:
        if model in missing.models:
            yield f"{missing.measure[0].upper()}{missing.measure[1:]}: {missing.reason}."


def summary(record: ContextRecord) -> Iterator[str]:
    """What is said of a whole group, and what is missing for all of it."""
    for group in record.named_groups():
        place = f"Group {group.name}: " if group.name else ""
        resolved = [step for step in group.information if step.nats.is_resolved]
        useful = [step for step in resolved if step.nats.value > 0]
        if useful:
            yield (
                f"{place}The group's best prediction still improves up to {useful[-1].longer} "
                f"{record.counted_in} of context (last resolved step: "
                f"{_loss(useful[-1].nats, record)} of V-information)."
            )
        elif group.information:
            yield f"{place}No step of context improves the group's best prediction measurably."
        for missing in group.missing:
            if not missing.models:
                line = missing_line(missing)
                yield f"{place}{line[0].upper()}{line[1:]}."
    if record.recl_missing:
        yield f"RECL: not available: {record.recl_missing}."
