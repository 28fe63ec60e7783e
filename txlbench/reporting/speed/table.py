"""Speed as tables: ways of reading down, attention lengths across, the paper's numbers below."""

import csv
import io
from collections.abc import Mapping
from typing import Any

from txlbench.reporting.speed.record import Line, SpeedRecord, way
from txlbench.reporting.table import EMPTY, Column, Table


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


def as_csv(record: SpeedRecord) -> str:
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
