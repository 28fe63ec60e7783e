"""Which numbers of a run MLflow charts: the lines of its metrics, and its final results."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

from txlbench.config.run import RunConfig
from txlbench.config.units import displayed
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
