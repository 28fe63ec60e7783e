"""Which parameters and numbers of a finding MLflow shows, by the name of its file.

Which numbers of a run MLflow charts: the lines of its metrics, and its final results.

A run's configuration as MLflow takes it: parameters that never change, tags that may.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from txlbench.config.base import Section, displayed
from txlbench.config.run_config import RunConfig
from txlbench.records.finding_schema import (
    BenchRecord,
    Finding,
    ReclRecord,
    SpeedRecord,
    TruthRecord,
)
from txlbench.records.run_directory import RunDirectory

AXES = ("step", "tokens")


def line_values(line: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """(name, value) of each metric of one line of metrics.jsonl, losses in nats."""
    for name, value in line.items():
        if name not in AXES and isinstance(value, int | float):
            yield name, float(value)


def summary_values(
    summary: Mapping[str, Any], config: RunConfig
) -> Iterator[tuple[str, float, int]]:
    """(name, value, step) of the newest results, losses in the unit of the corpus.

    The sweep's step is the attention length.
    """
    training = summary.get("training", {})
    for name in ("targets_trained", "tokens_per_second"):
        if isinstance(training.get(name), int | float):
            yield name, float(training[name]), 0
    entries = summary.get("results") or []
    if not entries:
        return
    entry, unit = entries[-1], config.corpus.unit
    split = entry["evaluate"]["split"]
    for name in ("init", "best"):
        yield f"{split}_{unit}_{name}", displayed(entry[name]["loss"], unit), 0
    if entry["attention_length"] is not None:
        yield "attention_length", float(entry["attention_length"]), 0
    for point in entry["sweep"]:
        name = f"{point['split']}_{unit}_at_attention_length"
        yield name, displayed(point["loss"], unit), int(point["attention_length"])


class Clock:
    """When a step was reached, from timings.jsonl: the same whenever it is delivered."""

    def __init__(self, run: RunDirectory) -> None:
        self._started = float(run.read_status().get("started", 0.0))
        # After a resumption steps come again; the later time of a step counts.
        times = {int(line["step"]): float(line["time"]) for line in run.read_timings()}
        self._steps = sorted(times)
        self._times = [times[step] for step in self._steps]

    def milliseconds(self, step: int) -> int:
        """Time of the last noted step up to `step`, else the run's start."""
        index = bisect_right(self._steps, step)
        return int(1000 * (self._times[index - 1] if index else self._started))


LONGEST_VALUE = 500
"""Characters that every MLflow server since the first accepts; the artifact has the rest."""


def parameters_of(config: RunConfig) -> dict[str, str]:
    """What decides the run, by dotted key: MLflow lets nobody change a parameter."""
    return {name: text for name, text, decides in _flatten(config) if decides}


def settings_of(config: RunConfig) -> dict[str, str]:
    """What may change while the run stays the same, such as how it is evaluated: tags."""
    return {name: text for name, text, decides in _flatten(config) if not decides}


def _flatten(config: RunConfig) -> Iterator[tuple[str, str, bool]]:
    """(dotted key, value, whether it is part of the run's identity)."""
    for name in type(config).model_fields:
        value = getattr(config, name)
        if not isinstance(value, Section):
            yield name, _text(value), True
            continue
        for key, item in value.model_dump(mode="json").items():
            decides = name != "evaluate" and key not in value.UNHASHED
            yield f"{name}.{key}", _text(item), decides


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


FORBIDDEN = re.compile(r"[^\w\-. /]")
"""What MLflow takes in no name of a metric."""


class Value(NamedTuple):
    """A number of a finding; the step is a context where there is one."""

    name: str
    value: float
    step: int = 0


def parameters_of_finding(finding: Finding) -> dict[str, str]:
    """The plain values at the top of the file, and which models there are."""
    content = finding.content
    plain = {
        key: str(value)[:LONGEST_VALUE]
        for key, value in content.items()
        if isinstance(value, str | int | float) or key in ("contexts", "r", "machine")
    }
    models = content.get("models")
    return {**plain, "models": ", ".join(models)[:LONGEST_VALUE]} if models else plain


def values_of_finding(finding: Finding) -> Iterator[Value]:
    """The numbers of a finding, losses in nats."""
    for value in _values(finding):
        yield value._replace(name=FORBIDDEN.sub("_", value.name))


def _values(finding: Finding) -> Iterator[Value]:
    match finding:
        case ReclRecord():
            return _recl(finding)
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
                yield Value(f"{prefix}loss/{model}", loss, context)


def _truth(record: TruthRecord) -> Iterator[Value]:
    for row in record.rows:
        yield Value(f"streaming/{row.label}", row.streaming.loss)
        yield Value(f"streaming_known/{row.label}", row.streaming.optimum)
        for line in row.recl:
            yield Value(f"recl_above_null/{row.label} r{line.r}", line.recl_above_null)
            yield Value(f"recl_true/{row.label} r{line.r}", line.true)
        for context, loss, known in zip(record.contexts, row.losses, row.known, strict=True):
            yield Value(f"loss/{row.label}", loss, context)
            yield Value(f"known/{row.label}", known, context)


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
