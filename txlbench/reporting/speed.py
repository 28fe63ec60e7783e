"""Speed as tables: ways of reading down, attention lengths across, the paper's numbers below.

speed.json as the tables and figures read it.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from txlbench.records.schema import read_of_schema
from txlbench.reporting.table import EMPTY, Column, Table

SCHEMA = "txlbench.speed/1"
Line = Mapping[str, Any]
"""A result: a model read in one way at one attention length."""


@dataclass(frozen=True)
class SpeedRecord:
    """All of speed.json; also the source that figures name.

    Attributes:
        command: what was typed to make what is written now.
    """

    content: Mapping[str, Any]
    command: str

    @property
    def lengths(self) -> Sequence[int]:
        """Attention lengths."""
        return self.content["attention_lengths"]

    @property
    def results(self) -> Sequence[Line]:
        return self.content["results"]

    @property
    def baseline(self) -> str:
        """The model whose sliding window the others are compared with."""
        return self.content["baseline"]

    @property
    def ways(self) -> dict[str, dict[int, Line]]:
        """Each way of reading a model, by its name, with its result at each attention length."""
        found: dict[str, dict[int, Line]] = {}
        for line in self.results:
            found.setdefault(way(line), {})[line["attention_length"]] = line
        for line in self.results:
            # Segments as long as the attention are also those of a number timed elsewhere.
            if line["regime"] == "reuse" and segments_of(line) in found:
                found[segments_of(line)][line["attention_length"]] = line
        return {name: dict(sorted(lines.items())) for name, lines in found.items()}

    @property
    def paper(self) -> dict[int, float]:
        """The paper's speedup by attention length, of the first model that has one."""
        found = [line for line in self.results if line["paper"] is not None]
        return {
            line["attention_length"]: line["paper"]
            for line in found
            if line["model"] == found[0]["model"]
        }

    @property
    def explanations(self) -> list[str]:
        """How the numbers were obtained."""
        content = self.content
        return [
            f"Time of one new token in evaluation, median of {content['rounds']} timings by turns "
            f"after {content['warm_up']} that are not counted, quartiles in brackets: "
            f"{content['machine']} ({content['device']}), {self._threads}, PyTorch "
            f"{content['torch']}, {content['precision']}, batch {content['batch_size']}.",
            f"Faster: how many times, than the sliding window of {self.baseline}, which reads the "
            "whole window anew for each token (stride 1). Reuse: segments beside a full memory "
            "of that many keys.",
        ]

    @property
    def _threads(self) -> str:
        threads = self.content["threads"]
        return f"{threads} thread{'s' * (threads != 1)}"

    @property
    def short(self) -> str:
        """One line for the foot of a figure."""
        content = self.content
        commit = (content["commit"] or "unknown")[:9]
        return (
            f"speed  ·  commit {commit}  ·  {content['machine']} ({content['device']}), "
            f"{self._threads}, {content['precision']}, batch {content['batch_size']}"
        )

    @property
    def full(self) -> str:
        """One line that names everything."""
        models = "; ".join(
            f"{name}: {source['reference']} ({source['parameters']:,} parameters)"
            for name, source in self.content["models"].items()
        )
        commit = self.content["commit"] or "unknown"
        return f"Models {models}; commit {commit}; command: {self.command}"


def way(line: Line) -> str:
    """What tables call a model read in one way."""
    if line["regime"] == "window":
        return f"{line['model']}, sliding window"
    if line["tgt_len"] == line["attention_length"]:
        return f"{line['model']}, reuse, segments as long as the attention"
    return segments_of(line)


def segments_of(line: Line) -> str:
    """What a model that reuses its state is called, by the tokens that it reads at once."""
    return f"{line['model']}, reuse, segments of {line['tgt_len']}"


def read_speed(path: Path, command: str) -> SpeedRecord:
    """The record in `path`; UserError if it is not one of this schema."""
    return SpeedRecord(read_of_schema(path, SCHEMA), command)


def speed_table(record: SpeedRecord) -> Table:
    """Milliseconds a token, then how many times faster than the baseline's sliding window."""
    ways, paper = record.ways, record.paper
    more = bool(paper)

    def column(header: str, cells: list[str], last: str) -> Column:
        return Column(header, tuple([*cells, last][: len(cells) + more]), is_number=True)

    columns = [Column("model", (*ways, "paper (Table 9)")[: len(ways) + more])]
    for length in record.lengths:
        cells = [_time(lines.get(length)) for lines in ways.values()]
        columns.append(column(f"ms a token, {length:,} keys", cells, EMPTY))
    for length in record.lengths:
        cells = [_speedup(lines.get(length)) for lines in ways.values()]
        published = f"{paper[length]:,.0f}" if length in paper else EMPTY
        columns.append(column(f"faster, {length:,} keys", cells, published))
    return Table(tuple(columns), tuple(record.explanations), record.full)


def _time(line: Line | None) -> str:
    return EMPTY if line is None else _spread(line["seconds_per_token"], 1000)


def _speedup(line: Line | None) -> str:
    return EMPTY if line is None else _spread(line["speedup"], 1)


def _spread(summary: Mapping[str, float], unit: float) -> str:
    """Median and quartiles to three digits."""
    median, low, high = (
        three_digits(unit * summary[name])
        for name in ("median", "lower_quartile", "upper_quartile")
    )
    return median if low == high else f"{median} ({low} to {high})"


def three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def speed_csv(record: SpeedRecord) -> str:
    """Every result, one a line, numbers in full; what is not known is empty."""
    text = io.StringIO()
    lines = [_flat(record, line) for line in record.results]
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _flat(record: SpeedRecord, line: Line) -> dict[str, Any]:
    content = record.content
    names = ("device", "machine", "threads", "precision", "batch_size", "baseline", "commit")
    return {
        "way": way(line),
        **{key: line[key] for key in ("model", "regime", "attention_length", "tgt_len")},
        **{f"seconds_{name}": value for name, value in line["seconds_per_token"].items()},
        **{f"speedup_{name}": value for name, value in line["speedup"].items()},
        "paper": line["paper"],
        **{name: content[name] for name in names},
        "command": record.command,
    }
