"""Everything that is shown of a bench.json: its table in three formats and a figure."""

import csv
import io
from pathlib import Path

from txlbench.files import write_text
from txlbench.reporting.bench import figure
from txlbench.reporting.bench.record import BenchRecord, read_bench
from txlbench.reporting.bench.table import bench_table
from txlbench.reporting.figures.style import add_foot, save, style
from txlbench.reporting.formats import latex, markdown, plain_text
from txlbench.reporting.written import Written


def report_bench(directory: Path, command: str, against: Path | None = None) -> Written:
    """Writes bench.csv, .md, .tex and figures/bench.png, .svg beside a bench.json.

    Args:
        against: another bench.json, whose speeds are divided by.

    Raises:
        UserError: if a record cannot be read.
    """
    record = read_bench(directory / "bench.json", command)
    other = None if against is None else read_bench(against, command)
    table = bench_table(record, other)
    texts = {"csv": _csv(record), "md": f"# Speed\n\n{markdown(table)}", "tex": latex(table)}
    for suffix, text in texts.items():
        write_text(directory / f"bench.{suffix}", text)
    with style():
        drawn = figure.draw(record)
        add_foot(drawn, record, ())
        figures = save(drawn, directory / "figures" / "bench", figure.TITLE, record)
    paths = [*(directory / f"bench.{suffix}" for suffix in texts), *figures]
    return Written(tuple(paths), plain_text(table))


def _csv(record: BenchRecord) -> str:
    """One line a workload, numbers in full."""
    lines = [
        {
            **{key: value for key, value in result.items() if key != "tokens_per_second"},
            **{f"tokens_per_second_{k}": v for k, v in result["tokens_per_second"].items()},
        }
        for result in record.results
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
