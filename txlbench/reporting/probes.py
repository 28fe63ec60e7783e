"""Probes as words, tables and lines of the CSV file."""

from collections.abc import Iterator, Mapping

from txlbench.records.context_schema import Interval
from txlbench.records.probe_schema import Eviction, FarContext, ProbeRecord, ProbeResult
from txlbench.reporting.context import NOT_AVAILABLE, missing_line, with_interval
from txlbench.reporting.pages.page import Answer, Remark
from txlbench.reporting.table import EMPTY, Column, Table


def short_source(record: ProbeRecord) -> str:
    """One line for the foot of a figure."""
    count = len(record.models)
    return f"probe  ·  commit {record.commit or 'unknown'}  ·  {count} model{'s' * (count != 1)}"


def _full_source(record: ProbeRecord) -> str:
    models = "; ".join(f"{name}: {source.reference}" for name, source in record.models.items())
    return f"Models {models}; {record.provenance}"


def probe_tables(record: ProbeRecord) -> tuple[Table, ...]:
    """The main table first: recall, caches and far context of each model in a line."""
    return (_main_table(record), _far_table(record), _recall_table(record), _cache_table(record))


def _main_table(record: ProbeRecord) -> Table:
    results = record.results
    nearest = record.contexts[:-1]
    columns = [
        Column("model", tuple(each.model for each in results)),
        Column("fine length", tuple(map(_fine, results)), True),
        Column("coarse length", tuple(map(_coarse, results)), True),
        *(
            Column(
                f"A({name}, {near})",
                tuple(_ablated(each, near, name) for each in results),
                True,
                rank=1 + index,
            )
            for index, near in enumerate(nearest)
            for name in record.changes
        ),
    ]
    footer = [*explanations(record), *(f"{line}." for line in missing_lines(record))]
    kept = tuple(column for column in columns if not column.is_empty)
    return Table(kept, tuple(footer), _full_source(record), "Probes of context")


def explanations(record: ProbeRecord) -> Iterator[str]:
    """How the numbers that are there came about."""
    if any(result.forgetting for result in record.results):
        yield (
            f"Fine length: the longest of {', '.join(map(str, record.lengths))} tokens whose "
            "second half is copied with a greedy accuracy of .99; coarse: the longest that is "
            "copied better than the same text is predicted after another one (paired t-tests, "
            "level .05 over all lengths together)."
        )
    if any(result.far for result in record.results):
        yield (
            f"A(f, k): with {record.contexts[-1]} tokens of context of which all but the nearest k "
            "are changed by f, the share of their worth that is lost: 0 none, 1 as if they were "
            "cut off. Models were not trained on changed text, so it is an upper bound. frequent, "
            "rare: only such tokens are kept, closed up."
        )
    yield (
        "In brackets: 95 % intervals from resampled blocks of tokens, and resampled texts; "
        f"seed {record.seed}."
    )


def missing_lines(record: ProbeRecord) -> Iterator[str]:
    """What is not available of each model, and why."""
    for result in record.results:
        for missing in result.missing:
            yield missing_line(missing, f" of {result.model}")


def _fine(result: ProbeResult) -> str:
    curve = result.forgetting
    if curve is None:
        return EMPTY
    capped = "≥" * (curve.fine.value == curve.longest)
    return capped + with_interval(curve.fine, ".0f")


def _coarse(result: ProbeResult) -> str:
    curve = result.forgetting
    if curve is None:
        return EMPTY
    return f"{'≥' * (curve.coarse == curve.longest)}{curve.coarse}"


def _ablated(result: ProbeResult, near: int, name: str) -> str:
    changes = (c for far in result.far if far.near == near for c in far.changes if c.change == name)
    found = next(changes, None)
    if found is None:
        return EMPTY
    return with_interval(found.ablated, ".2f") or NOT_AVAILABLE


def _far_table(record: ProbeRecord) -> Table:
    found = [(r, far, c) for r in record.results for far in r.far for c in far.changes]
    columns = (
        Column("model", tuple(result.model for result, *_ in found)),
        Column("kept as they are", tuple(str(far.near) for _, far, _ in found), True),
        Column("worth of the rest", tuple(with_interval(far.worth) for _, far, _ in found), True),
        Column("change", tuple(change.change for *_, change in found)),
        Column("cost", tuple(with_interval(change.cost) for *_, change in found), True),
        Column(
            "A",
            tuple(with_interval(change.ablated, ".2f") or NOT_AVAILABLE for *_, change in found),
            True,
        ),
    )
    footer = ("Nats a token. Worth: m(k) - m(n); cost: m_f(k) - m(n); A: their ratio.",)
    return Table(columns, footer, _full_source(record), "Perturbed far context")


def _recall_table(record: ProbeRecord) -> Table:
    found = [(r, p) for r in record.results if r.forgetting for p in r.forgetting.points]
    columns = (
        Column("model", tuple(result.model for result, _ in found)),
        Column("length", tuple(str(point.length) for _, point in found), True),
        Column("texts", tuple(str(point.texts) for _, point in found), True),
        Column(
            "accuracy after itself",
            tuple(with_interval(point.copy_accuracy) for _, point in found),
            True,
        ),
        Column(
            "after another", tuple(with_interval(point.other_accuracy) for _, point in found), True
        ),
        Column("p", tuple(f"{point.p:.2g}" for _, point in found), True),
        Column("nats gained", tuple(with_interval(point.loss_gain) for _, point in found), True),
    )
    footer = ("Greedy accuracy and nats a token on the second half of each text.",)
    return Table(columns, footer, _full_source(record), "Forgetting curve")


def _cache_table(record: ProbeRecord) -> Table:
    found = [(result, each) for result in record.results for each in result.evictions]
    columns = (
        Column("model", tuple(result.model for result, _ in found)),
        Column("keys", tuple(str(each.keys) for _, each in found), True),
        Column("cost of a plain window", tuple(with_interval(e.cost) for _, e in found), True),
        Column(
            f"saved by {record.sinks} sinks",
            tuple(with_interval(each.saved) or NOT_AVAILABLE for _, each in found),
            True,
        ),
    )
    footer = (
        "Nats a token. Every query sees so many keys: the newest, or the first of the window and "
        "the newest besides. Layers pass on what theirs saw.",
    )
    return Table(columns, footer, _full_source(record), "Cache eviction")


def probe_lines(record: ProbeRecord) -> Iterator[Mapping[str, object]]:
    """The lines of the CSV file: every value with its interval, losses in nats."""
    for result in record.results:
        for measure, at, found in measured_values(result):
            yield {
                "model": result.model,
                "measure": measure,
                "at": at,
                "value": found.value,
                "low": found.low,
                "high": found.high,
                "commit": record.commit,
                "command": record.command,
            }


def measured_values(result: ProbeResult) -> Iterator[tuple[str, str, Interval]]:
    """Measure, where it was taken, and the value."""
    if result.full is not None:
        yield "loss_nats", str(result.context), result.full
    for far in result.far:
        yield "worth_nats", str(far.near), far.worth
        for change in far.changes:
            yield "cost_nats", f"{change.change} beyond {far.near}", change.cost
            if change.ablated is not None:
                yield "ablated", f"{change.change} beyond {far.near}", change.ablated
    if result.forgetting is not None:
        yield "fine_length", EMPTY, result.forgetting.fine
        yield "coarse_length", EMPTY, Interval(value=result.forgetting.coarse)
        for point in result.forgetting.points:
            for name in ("copy_accuracy", "other_accuracy", "copy_loss", "other_loss", "loss_gain"):
                yield name, str(point.length), getattr(point, name)
    for each in result.evictions:
        yield "window_cost_nats", str(each.keys), each.cost
        if each.saved is not None:
            yield "sinks_saved_nats", str(each.keys), each.saved


def probe_answers(record: ProbeRecord) -> tuple[Answer, ...]:
    """What each model recalls, loses with changed far context, and pays for a short cache."""
    return tuple(Answer(tuple(_remarks(result)), result.model) for result in record.results)


def _remarks(result: ProbeResult) -> Iterator[Remark]:
    curve = result.forgetting
    if curve is not None:
        yield Remark(
            "Recall",
            (
                "No text better than chance."
                if not curve.coarse
                else f"Texts of up to {_fine(result)} tokens nearly without fault, and better than "
                f"chance up to {_coarse(result)}."
                if curve.fine.value
                else "No text without fault, and better than chance up to "
                f"{_coarse(result)} tokens.",
            ),
        )
    lost = tuple(_lost(far) for far in result.far)
    if any(lost):
        yield Remark("Changed far context", tuple(filter(None, lost)))
    if result.evictions:
        yield Remark("Cache of few keys", tuple(map(_evicted, result.evictions)))
    if result.missing:
        missing = tuple(f"{_capital(missing_line(each))}." for each in result.missing)
        yield Remark("Not available", missing)


def _lost(far: FarContext) -> str:
    known = [change for change in far.changes if change.ablated is not None]
    shares = ", ".join(f"{each.change} {with_interval(each.ablated, '.0%')}" for each in known)
    if not shares:
        return ""
    return (
        f"What lies beyond {far.near} tokens is worth {with_interval(far.worth)} nats; of them is "
        f"lost, at most: {shares}."
    )


def _evicted(each: Eviction) -> str:
    saved = "" if each.saved is None else f", of which sinks save {with_interval(each.saved)}"
    return f"{each.keys} keys cost {with_interval(each.cost)} nats{saved}."


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
