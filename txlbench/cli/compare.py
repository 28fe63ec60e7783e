"""`compare`: which of several rows is better, by how much, and whether that is resolved."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from txlbench.cli.options import format_option, verb
from txlbench.errors import UserError, suggestion
from txlbench.records.experiment_directory import ExperimentDirectory, under_results

if TYPE_CHECKING:
    from txlbench.reporting.comparison import Comparison
    from txlbench.reporting.rows import TableRow


@verb(
    "compare",
    "txlbench compare quick",
    "txlbench compare quick/Transformer-XL 'quick/XL without recurrence'",
    "txlbench compare quick --measure init --format json",
)
@click.argument("rows", nargs=-1, required=True)
@click.option(
    "--measure",
    type=click.Choice(["best", "init"]),
    default="best",
    show_default=True,
    help="Loss that is compared: at the best attention length, or as in training.",
)
@format_option
def compare(rows: tuple[str, ...], measure: str, format_: str) -> None:
    """Compare rows pair by pair, on the seeds and the test tokens that both have.

    ROWS are experiments, all of whose rows are taken, or single rows as EXPERIMENT/LABEL; rows of
    several experiments can be compared where they score the same tokens. A pair is resolved if its
    difference has a sign beyond training (seeds) and text (tokens), corrected for the number of
    pairs. With one seed nothing is resolved, since another training might come out otherwise.
    """
    from txlbench.reporting.compare import compare as compare_rows
    from txlbench.reporting.rows import units

    found = _rows(rows)
    each_unit = [[row for row in found if row.unit == unit] for unit in units(found)]
    compared = [compare_rows(each, measure) for each in each_unit]
    if format_ == "json":
        content = {
            "schema": "txlbench.comparison/1",
            "comparisons": [each.content for each in compared],
        }
        click.echo(json.dumps(content, indent=2, ensure_ascii=False))
        return
    for each in compared:
        _show(each)


OLD_RECORDS = (
    "Intervals over seeds alone, as records of earlier versions have no losses by block: delete "
    "their evaluations/ and repeat `ablate`, which then measures again and trains nothing."
)


def _show(compared: "Comparison") -> None:
    from txlbench.reporting.comparison import pair_table
    from txlbench.reporting.table import plain_text

    click.echo(compared.headline)
    if len(compared.rows) > 2:
        click.echo(f"\n{plain_text(pair_table(compared))}".rstrip())
    if compared.left_out:
        click.echo(f"Not compared: {', '.join(compared.left_out)}.")
    if any(pair.difference is not None and not pair.covers_tokens for pair in compared.pairs):
        click.echo(OLD_RECORDS)


def _rows(references: tuple[str, ...]) -> "list[TableRow]":
    """The rows that the arguments name, each once; with their experiments' names, if several."""
    named = [(directory, label) for each in references for directory, label in _named(each)]
    several = len({directory.path for directory, _ in named}) > 1
    found: dict[tuple[Path, str], TableRow] = {}
    for directory, label in named:
        for row in _of(directory, label):
            title = f"{directory.path.name}/{row.label}" if several else row.label
            line = replace(row.line, label=title)
            found.setdefault((directory.path, row.label), replace(row, line=line))
    if len(found) < 2:
        raise UserError(
            f"{' '.join(references)}: one row only", "give another, or an experiment of several"
        )
    return list(found.values())


def _named(reference: str) -> "list[tuple[ExperimentDirectory, str | None]]":
    """The experiment that an argument names, with the label behind it, if there is one."""
    parts = reference.rstrip("/").split("/")
    for end in range(1, len(parts) + 1):
        directory = ExperimentDirectory(under_results(Path("/".join(parts[:end]) or "/")))
        if directory.spec_file.is_file():
            return [(directory, "/".join(parts[end:]) or None)]
    raise UserError(f"{reference}: no experiment there", "give EXPERIMENT or EXPERIMENT/LABEL")


def _of(directory: ExperimentDirectory, label: str | None) -> "list[TableRow]":
    from txlbench.reporting.experiment_results import read_results
    from txlbench.reporting.rows import build_rows

    rows = build_rows(read_results(directory))
    if label is None:
        return rows
    chosen = [row for row in rows if row.label == label]
    if not chosen:
        known = [row.label for row in rows]
        raise UserError(f"{directory.path}/{label}: no such row", suggestion(label, known))
    return chosen
