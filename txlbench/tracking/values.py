"""Parameters, tags, metrics and descriptions of runs, experiments and findings in MLflow.

Parameters are what decides a run and never changes; what may change is a tag. Losses are in the
unit in which tables show them, and named for it.
"""

import contextlib
import csv
import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from txlbench.config.base import Section, displayed
from txlbench.config.grid import Experiment
from txlbench.config.run_config import RunConfig
from txlbench.records.attention_schema import AttentionRecord
from txlbench.records.context_schema import ContextRecord
from txlbench.records.finding_schema import (
    BenchRecord,
    Finding,
    ReclRecord,
    SpeedRecord,
    TruthRecord,
)
from txlbench.records.probe_schema import ProbeRecord
from txlbench.records.run_directory import RunDirectory
from txlbench.records.sample_schema import SamplesRecord
from txlbench.records.schema import Facts, LogLine, Summary

AXES = ("step", "tokens", "targets")
FIRST = 5
"""Results that the description begins with."""
LONGEST_NOTE = 5000
"""Characters of a description that every MLflow server accepts."""
SYSTEM = {"tokens_per_second": 1.0, "memory_bytes": 1e-6}
"""Numbers of timings.jsonl that become system metrics, and what they are multiplied by."""


class Value(NamedTuple):
    """A number for MLflow; the step is a context or an attention length where there is one."""

    name: str
    value: float
    step: int = 0


def line_values(line: LogLine, unit: str) -> Iterator[Value]:
    """Yields the metrics of one line of metrics.jsonl; losses are named for the unit shown."""
    for name, value in line.content.items():
        if name in AXES or not isinstance(value, int | float):
            continue
        if name in ("train_loss", "valid_loss"):
            yield Value(name.replace("loss", unit), displayed(value, unit), line.step)
        else:
            yield Value(name, float(value), line.step)


def system_values(line: LogLine) -> Iterator[Value]:
    """Yields the system metrics of one line of timings.jsonl, memory in megabytes."""
    for name, value in line.content.items():
        if name in SYSTEM:
            shown = f"system/{name.replace('bytes', 'megabytes')}"
            yield Value(shown, SYSTEM[name] * value, line.step)


def summary_values(summary: Summary, config: RunConfig) -> Iterator[Value]:
    """Yields the newest results, losses in the unit of the corpus.

    The sweep's step is the attention length.
    """
    if summary.training and summary.training.tokens_per_second is not None:
        yield Value("tokens_per_second", summary.training.tokens_per_second)
    if not summary.results:
        return
    outcome, unit = summary.results[-1], config.corpus.unit
    for name, record in (("init", outcome.init), ("best", outcome.best)):
        yield Value(f"{record.measurement.split}_{unit}_{name}", displayed(record.loss, unit))
    if outcome.attention_length is not None:
        yield Value("attention_length", outcome.attention_length)
    for point in outcome.sweep:
        name = f"{point.split}_{unit}_at_attention_length"
        yield Value(name, displayed(point.loss, unit), point.attention_length)


def paper_values(paper: Mapping[str, float | str]) -> Iterator[Value]:
    """Yields the paper's numbers of a row."""
    for name, value in paper.items():
        if isinstance(value, int | float):
            yield Value(f"paper_{name}", float(value))


def table_values(table: Path, unit: str) -> list[Value]:
    """Returns the results of each row of table.csv, the lowest first; empty without the file."""
    values = list(_columns(table, (f"{unit}_best", f"{unit}_init")))
    return sorted(values, key=lambda each: (each.name.split("/")[0], each.value))


COMPARED = ("difference", "difference_half_width", "difference_p_holm")


def comparison_values(table: Path, unit: str) -> list[Value]:
    """Returns each row's difference to the first row of table.csv, with interval and p-value."""
    names = [f"{unit}_{measure}_{what}" for measure in ("best", "init") for what in COMPARED]
    return list(_columns(table, names))


def _columns(table: Path, names: Sequence[str]) -> Iterator[Value]:
    """Yields the numbers of some columns of a CSV, each named for its column and row."""
    if not table.is_file():
        return
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for name in names:
        for row in rows:
            with contextlib.suppress(KeyError, TypeError, ValueError):  # no number yet
                yield Value(f"{name}/{row['row']}", float(row[name]))


def headlines(table: Path) -> str:
    """Returns what table.json says in words of the rows' best losses; empty if it says nothing."""
    try:
        compared = json.loads(table.read_bytes())["comparisons"]
        return " ".join(str(each["headline"]) for each in compared if each["measure"] == "best")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def parameters_of_experiment(experiment: Experiment) -> dict[str, str]:
    """Returns what varies among the rows, all values of a key together, and how many rows."""
    configs = [config for line in experiment.lines for config in line.configs]
    values: dict[str, dict[str, None]] = {}
    for name, text, _ in (each for config in configs for each in _flatten(config)):
        values.setdefault(name, {})[text] = None
    varied = {name: _cut(", ".join(texts)) for name, texts in values.items() if len(texts) > 1}
    return {"rows": str(len(experiment.lines)), "corpus": configs[0].corpus.name, **varied}


def description(directory: Path, results: Sequence[Value], table: Path, runs: int) -> str:
    """Returns a description in Markdown: best results, where the runs are, the table as it fits."""
    column = results[0].name.partition("/")[0] if results else ""
    best = [value for value in results if value.name.startswith(f"{column}/")][:FIRST]
    named = (f"{name.partition('/')[2]} {value:.3f}" for name, value, _ in best)
    head = f"{column.replace('_', ' ')}: {', '.join(named)}. " if best else ""
    if said := headlines(table.with_suffix(".json")):
        head = f"{_cut(said)} {head}"
    head += (
        f"{runs} run{'s' * (runs != 1)}, nested below the run of the experiment's name: open it "
        f"with the + beside it. Tables and figures are its artifacts; all files lie in {directory}."
    )
    lines = table.read_text(encoding="utf-8").splitlines() if table.is_file() else []
    rows = [line for line in lines if line.startswith("|")]
    while rows and sum(map(len, rows)) + len(rows) + len(head) > LONGEST_NOTE:
        rows.pop()
    return "\n\n".join([head, "\n".join(rows)]).strip()


def facts_tags(facts: Facts) -> dict[str, str]:
    """Returns where a run was trained and with which code, as tags."""
    commit = {"mlflow.source.git.commit": facts.commit} if facts.commit else {}
    keys = ("device", "device_name", "threads", "precision")
    found = {key: getattr(facts, key) for key in keys}
    return commit | {key: str(value) for key, value in found.items() if value is not None}


class Clock:
    """When a step was reached, from timings.jsonl: the same whenever it is delivered."""

    def __init__(self, run: RunDirectory) -> None:
        self._started = run.read_status().started or 0.0
        # After a resumption steps come again; the later time of a step counts.
        times = {line.step: line.time for line in run.read_timings()}
        self._steps = sorted(times)
        self._times = [times[step] for step in self._steps]

    def milliseconds(self, step: int) -> int:
        """Returns the time of the last noted step up to `step`, else of the run's start."""
        index = bisect_right(self._steps, step)
        return int(1000 * (self._times[index - 1] if index else self._started))


LONGEST_VALUE = 500
"""Characters that every MLflow server since the first accepts; the artifact has the rest."""


def parameters_of(config: RunConfig) -> dict[str, str]:
    """Returns what decides the run, by dotted key."""
    return {name: text for name, text, decides in _flatten(config) if decides}


def settings_of(config: RunConfig) -> dict[str, str]:
    """Returns what may change while the run stays the same, such as how it is evaluated."""
    return {name: text for name, text, decides in _flatten(config) if not decides}


def _flatten(config: RunConfig) -> Iterator[tuple[str, str, bool]]:
    """Yields (dotted key, value, whether it is part of the run's identity)."""
    for name in type(config).model_fields:
        value = getattr(config, name)
        if not isinstance(value, Section):
            yield name, _text(value), True
            continue
        for key, item in value.model_dump(mode="json").items():
            decides = name != "evaluate" and key not in value.UNHASHED
            yield f"{name}.{key}", _text(item), decides


def _text(value: Any) -> str:
    return _cut(value if isinstance(value, str) else json.dumps(value))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def title_of_finding(kind: str, finding: Finding, folder: str) -> str:
    """Returns a name for the run of a finding: its models, else its folder's name."""
    groups: list[Iterable[str]] = []
    if isinstance(finding, ReclRecord | ContextRecord):
        groups = [group.models for group in finding.groups]
    elif isinstance(finding, SpeedRecord | ProbeRecord | AttentionRecord | SamplesRecord):
        groups = [finding.models]
    return f"{kind} of {' | '.join(map(', '.join, groups))}"[:200] if groups else folder


def parameters_of_finding(finding: Finding) -> dict[str, str]:
    """Returns the plain values at the top of the file, and which models there are."""
    content = finding.content
    plain = {
        key: str(value)[:LONGEST_VALUE]
        for key, value in content.items()
        if isinstance(value, str | int | float) or key in ("contexts", "r", "machine")
    }
    models = content.get("models")
    return {**plain, "models": ", ".join(models)[:LONGEST_VALUE]} if models else plain


def values_of_finding(finding: Finding) -> Iterator[Value]:
    """Yields the numbers of a finding, losses in nats."""
    match finding:
        case ReclRecord():
            return _recl(finding)
        case ContextRecord():
            return _context(finding)
        case ProbeRecord():
            return _probe(finding)
        case AttentionRecord():
            return _attention(finding)
        case SamplesRecord():
            return _samples(finding)
        case TruthRecord():
            return _truth(finding)
        case BenchRecord():
            return _bench(finding)
        case SpeedRecord():
            return _speed(finding)
    raise AssertionError(finding)


def _recl(record: ReclRecord) -> Iterator[Value]:
    for number, group in enumerate(record.groups):
        prefix = f"group {number + 1}/" if len(record.groups) > 1 else ""
        for line in group.results:
            of = f"{line.model} r{line.r}"
            yield Value(f"{prefix}recl/{of}", line.recl)
            yield Value(f"{prefix}recl_above_null/{of}", line.recl_above_null)
        for model, losses in group.losses.items():
            for context, loss in zip(record.contexts, losses, strict=True):
                yield Value(f"{prefix}loss_nats/{model}", loss, context)


def _context(record: ContextRecord) -> Iterator[Value]:
    for number, group in enumerate(record.groups):
        prefix = f"group {number + 1}/" if len(record.groups) > 1 else ""
        for curve in group.curves:
            yield Value(f"{prefix}ecl/{curve.model}", curve.ecl.value)
            yield Value(f"{prefix}gain_nats/{curve.model}", curve.gain.value)
            for context, loss in zip(record.contexts, curve.losses, strict=True):
                yield Value(f"{prefix}loss_nats/{curve.model}", loss.value, context)
        for law in group.power_laws:
            yield Value(f"{prefix}power_law_beta/{law.model}", law.beta.value)
        for key in group.key_tokens:
            if key.longppl is not None:
                yield Value(f"{prefix}longppl/{key.model} by {key.chosen_by}", key.longppl.value)
        found = group.mutual_information
        for each in found.exponents if found else ():
            if each.exponent is not None:
                yield Value(f"{prefix}l2m_exponent/{each.model} {each.way}", each.exponent.value)


def _probe(record: ProbeRecord) -> Iterator[Value]:
    """The step is the length of a text, the tokens that are kept, or the keys of a cache."""
    for result in record.results:
        of = result.model
        for far in result.far:
            for change in far.changes:
                if change.ablated is not None:
                    yield Value(f"ablated/{of} {change.change}", change.ablated.value, far.near)
        if result.forgetting is not None:
            yield Value(f"fine_length/{of}", result.forgetting.fine.value)
            yield Value(f"coarse_length/{of}", float(result.forgetting.coarse))
            for point in result.forgetting.points:
                yield Value(f"copy_accuracy/{of}", point.copy_accuracy.value, point.length)
        for each in result.evictions:
            yield Value(f"window_cost_nats/{of}", each.cost.value, each.keys)


def _attention(record: AttentionRecord) -> Iterator[Value]:
    """The step is the layer; means over its heads."""
    for layer, heads in record.layers.items():
        for name in ("distance", "entropy"):
            mean = sum(getattr(head, name).value for head in heads) / len(heads)
            yield Value(f"attention_{name}/{record.title}", mean, layer)
        for letter in record.letters:
            of_layer = [t.scale for t in record.terms if (t.layer, t.term) == (layer, letter)]
            mean = sum(of_layer) / max(1, len(of_layer))
            yield Value(f"score_scale_{letter}/{record.title}", mean, layer)


def _samples(record: SamplesRecord) -> Iterator[Value]:
    """The step is the number of the sample."""
    for number, each in enumerate(record.samples, start=1):
        yield Value(f"sample_nats/{record.title}", each.loss, number)
        if each.reference_loss is not None:
            yield Value(f"reference_nats/{record.title}", each.reference_loss, number)


def _truth(record: TruthRecord) -> Iterator[Value]:
    for row in record.rows:
        yield Value(f"streaming_nats/{row.label}", row.streaming.loss)
        yield Value(f"streaming_known_nats/{row.label}", row.streaming.optimum)
        for line in row.recl:
            yield Value(f"recl_above_null/{row.label} r{line.r}", line.recl_above_null)
            yield Value(f"recl_true/{row.label} r{line.r}", line.true)
        for context, loss, known in zip(record.contexts, row.losses, row.known, strict=True):
            yield Value(f"loss_nats/{row.label}", loss, context)
            yield Value(f"known_nats/{row.label}", known, context)


def _bench(record: BenchRecord) -> Iterator[Value]:
    for result in record.results:
        name = f"{result.work} {result.size} {result.dtype} M{result.mem_len}"
        yield Value(f"tokens_per_second/{name}", result.tokens_per_second.median)
        yield Value(f"peak_memory_bytes/{name}", result.peak_memory_bytes)


def _speed(record: SpeedRecord) -> Iterator[Value]:
    """The step is the attention length."""
    for line in record.results:
        segment = f" L{line.tgt_len}" if line.tgt_len else ""
        name, length = f"{line.model} {line.regime}{segment}", line.attention_length
        yield Value(f"seconds_per_token/{name}", line.seconds_per_token.median, length)
        yield Value(f"speedup/{name}", line.speedup.median, length)
