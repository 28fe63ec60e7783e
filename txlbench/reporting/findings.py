"""Tables and figures of a finding, by the name of its file.

What a report of a finding made.

Everything that is shown of a recl.json: its tables in three formats and its figures.

Everything that is shown of a speed.json: its table in three formats and its figure.

Everything that is shown of a bench.json: its table in three formats and a figure.

Everything that is shown of a truth.json: a page, its table in three formats, a figure.
"""

import contextlib
import csv
import io
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from txlbench.errors import UserError
from txlbench.files import write_text
from txlbench.records.experiment_directory import find_experiments
from txlbench.reporting.bench import BenchRecord, bench_table, read_bench
from txlbench.reporting.figures import finding_figures, recl_curves
from txlbench.reporting.figures.style import (
    Drawing,
    FigureSource,
    Look,
    Palette,
    style,
    write_figure,
)
from txlbench.reporting.recl import (
    ReclRecord,
    explanations,
    read_recl,
    recl_csv,
    recl_table,
    sensitivity_table,
    subgroup_table,
)
from txlbench.reporting.speed import read_speed, speed_csv, speed_table
from txlbench.reporting.table import Table, latex, markdown, plain_text
from txlbench.reporting.truth import TruthRecord, context_table, read_truth, truth_csv, truth_table


@dataclass(frozen=True)
class Written:
    """Files, and the main table as plain text for a terminal."""

    paths: tuple[Path, ...]
    text: str


RECL_FIGURES = {"recl_gain": recl_curves.draw_gains, "recl_loss": recl_curves.draw_losses}
"""File name -> what draws it, one file a group."""


def report_recl(directory: Path, command: str, look: Look | None = None) -> Written:
    """Writes recl.csv, .md, .tex and figures/recl_*.png, .svg beside a recl.json.

    Args:
        command: what the user typed, which tables and figures name.

    Raises:
        UserError: if the record cannot be read.
    """
    record = read_recl(directory / "recl.json", command)
    table = recl_table(record)
    paths = _write_tables(directory, record, table)
    paths += _draw_figures(directory, record, look or Look())
    shown = Table(table.columns, tuple(explanations(record)), record.short)
    return Written(tuple(paths), plain_text(shown))


def _write_tables(directory: Path, record: ReclRecord, table: Table) -> list[Path]:
    parts = [("Relative effective context length", table)]
    parts.append(("Other steps, first contexts and thresholds", sensitivity_table(record)))
    subgroups = subgroup_table(record)
    if subgroups.rows:
        parts.append(("Smaller groups", subgroups))
    texts = {
        "csv": recl_csv(record),
        "md": "\n".join(f"# {title}\n\n{markdown(part)}" for title, part in parts),
        "tex": latex(table),
    }
    for suffix, text in texts.items():
        write_text(directory / f"recl.{suffix}", text)
    return [directory / f"recl.{suffix}" for suffix in texts]


def _draw_figures(directory: Path, record: ReclRecord, look: Look) -> list[Path]:
    palette = _palette(record.models, directory)
    paths = []
    with style(look.width):
        for name, draw in RECL_FIGURES.items():
            for group in record.groups():
                stem = directory / "figures" / f"{name}{f'-{group.name}' * bool(group.name)}"
                paths += write_figure(draw(record, group, palette), stem, record, look)
    return paths


def _draw(
    directory: Path, name: str, draw: Callable[[], Drawing], source: FigureSource, look: Look
) -> list[Path]:
    with style(look.width):
        return write_figure(draw(), directory / "figures" / name, source, look)


def _palette(models: Iterable[str], directory: Path) -> Palette:
    """The colours that models have in the figures of the experiment beside `directory`.

    Of several experiments the one counts that has the most of the models.
    """
    wanted = list(dict.fromkeys(models))
    known: tuple[str, ...] = ()
    for experiment in find_experiments(directory.parent):
        with contextlib.suppress(UserError):
            labels = tuple(line.label for line in experiment.read_spec().lines)
            known = max(known, labels, key=lambda each: len(set(each) & set(wanted)))
    if not set(known) & set(wanted):
        return Palette(tuple(wanted))
    return Palette((*known, *(model for model in wanted if model not in known)))


def report_speed(directory: Path, command: str, look: Look | None = None) -> Written:
    """Writes speed.csv, .md, .tex and figures/speed.png, .svg beside a speed.json.

    Args:
        command: what the user typed, which tables and figures name.

    Raises:
        UserError: if the record cannot be read.
    """
    record = read_speed(directory / "speed.json", command)
    table = speed_table(record)
    texts = {
        "csv": speed_csv(record),
        "md": f"# Speed of evaluation\n\n{markdown(table)}",
        "tex": latex(table),
    }
    for suffix, text in texts.items():
        write_text(directory / f"speed.{suffix}", text)
    paths = [directory / f"speed.{suffix}" for suffix in texts]
    palette = _palette((line["model"] for line in record.results), directory)
    draw = partial(finding_figures.draw_speed, record, palette)
    paths += _draw(directory, "speed", draw, record, look or Look())
    return Written(tuple(paths), plain_text(table))


def report_bench(
    directory: Path, command: str, look: Look | None = None, against: Path | None = None
) -> Written:
    """Writes bench.csv, .md, .tex and figures/bench.png, .svg beside a bench.json.

    Args:
        against: another bench.json, whose speeds are divided by.

    Raises:
        UserError: if a record cannot be read.
    """
    record = read_bench(directory / "bench.json", command)
    other = None if against is None else read_bench(against, command)
    table = bench_table(record, other)
    texts = {"csv": _bench_csv(record), "md": f"# Speed\n\n{markdown(table)}", "tex": latex(table)}
    for suffix, text in texts.items():
        write_text(directory / f"bench.{suffix}", text)
    draw = partial(finding_figures.draw_bench, record)
    figures = _draw(directory, "bench", draw, record, look or Look())
    paths = [*(directory / f"bench.{suffix}" for suffix in texts), *figures]
    return Written(tuple(paths), plain_text(table))


def _bench_csv(record: BenchRecord) -> str:
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


def report_truth(directory: Path, command: str, look: Look | None = None) -> Written:
    """Writes truth.md, .csv, .tex and figures/truth.png, .svg beside a truth.json.

    Raises:
        UserError: if the record cannot be read.
    """
    record = read_truth(directory / "truth.json", command)
    table = truth_table(record)
    texts = {"md": _truth_page(record), "csv": truth_csv(record), "tex": latex(table)}
    for suffix, text in texts.items():
        write_text(directory / f"truth.{suffix}", text)
    palette = _palette(map(finding_figures.truth_name, record.rows), directory)
    draw = partial(finding_figures.draw_truth, record, palette)
    figures = _draw(directory, "truth", draw, record, look or Look())
    paths = [*(directory / f"truth.{suffix}" for suffix in texts), *figures]
    return Written(tuple(paths), plain_text(table))


def _truth_page(record: TruthRecord) -> str:
    return "\n".join(
        [
            "# Measured against known\n",
            markdown(truth_table(record)),
            "![Measured and known loss by context](figures/truth.png)\n",
            "## Loss by context\n",
            markdown(context_table(record)),
        ]
    )


REPORTS: Mapping[str, Callable[[Path, str, Look | None], Written]] = {
    "recl.json": report_recl,
    "truth.json": report_truth,
    "bench.json": report_bench,
    "speed.json": report_speed,
}


def report_finding(path: Path, command: str, look: Look | None = None) -> Written:
    """Writes what is shown of the finding `path`.

    Raises:
        UserError: if it is not whole.
    """
    try:
        return REPORTS[path.name](path.parent, command, look)
    except (UserError, OSError):
        raise
    except Exception as error:  # of many kinds, from values that no verb writes
        kind = type(error).__name__
        raise UserError(f"{path}: damaged ({kind})", "restore it, or run the verb again") from error
