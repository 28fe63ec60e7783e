"""Everything an experiment shows, written out: page, table in three formats, and figures."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from txlbench.errors import UserError
from txlbench.files import read_json, write_text
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.reporting.compare import comparisons
from txlbench.reporting.experiment_results import Results, read_results
from txlbench.reporting.figures import attention_length, learning_curves, losses, memory_lengths
from txlbench.reporting.figures.series import unit_of
from txlbench.reporting.figures.style import (
    Drawing,
    Look,
    Palette,
    cut,
    scaled,
    style,
    write_figure,
)
from txlbench.reporting.pages.experiment_findings import parts_about
from txlbench.reporting.pages.experiment_page import experiment_page
from txlbench.reporting.pages.page import Picture, render
from txlbench.reporting.pages.pictures import picture
from txlbench.reporting.pages.result_index import refresh_index
from txlbench.reporting.provenance import Provenance
from txlbench.reporting.result_table import TableChoice, build_table, table_frame
from txlbench.reporting.rows import best_loss, build_rows
from txlbench.reporting.table import (
    Table,
    enumerated,
    for_terminal,
    latex,
    markdown,
    plain_text,
)

if TYPE_CHECKING:
    import pandas as pd

FIGURES: dict[str, Callable[[Results, Palette], Drawing | None]] = {
    "learning_curves": learning_curves.draw,
    "attention_length": attention_length.draw,
    "memory_lengths": memory_lengths.draw,
    "loss_by_row": losses.draw_loss_by_row,
    "loss_by_position": losses.draw_loss_by_position,
}
"""File name -> what draws it, or None where the records hold nothing for it."""
MOST_ROWS = 40
"""More rows cannot be told apart in a figure; of more the best and the worst are drawn."""
MOST_NAMED = 8


def draw_all(
    results: Results, provenance: Provenance, folder: Path, look: Look | None = None
) -> list[Path]:
    """Writes every figure that the records allow into `folder`."""
    look = look or Look()
    written = []
    with style(look.width):
        for name, draw, note in _figures(results):
            written += write_figure(draw(), folder / name, provenance, look, note)
    return written


def _figures(results: Results) -> Iterator[tuple[str, Callable[[], Drawing | None], str]]:
    """File name, what draws it, and what it leaves out, of every figure; call within `style`."""
    palette = Palette(results.labels)
    shown, reason = _readable(results)
    missing = [cut(each, scaled(7)) for each in shown.left_out(unit_of(results))]
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    left_out = f"Not shown: {enumerated(missing[:MOST_NAMED])}{more}" if missing else ""
    for name, draw in FIGURES.items():
        note = reason if name == "learning_curves" else f"{left_out} {reason}"
        yield name, partial(draw, shown, palette), note.strip()


def _pictures(results: Results, provenance: Provenance) -> list[Picture]:
    """The figures for a page, that of the rows' losses first."""
    with style():
        figures = sorted(_figures(results), key=lambda figure: figure[0] != "loss_by_row")
    drawn = (picture(name, draw, provenance, note) for name, draw, note in figures)
    return [each for each in drawn if each is not None]


def _readable(results: Results) -> tuple[Results, str]:
    """The rows that a figure can hold, and what is said where that is not all of them."""
    if len(results.labels) <= MOST_ROWS:
        return results, ""
    means = {row.label: row.mean(best_loss) for row in build_rows(results) if row.did_train}
    found = {label: mean.mean for label, mean in means.items() if mean is not None}
    ranked = sorted(found, key=found.__getitem__)
    half = MOST_ROWS // 2
    chosen = [*ranked[:half], *ranked[half:][-half:]] or list(results.labels[:MOST_ROWS])
    what = "the best and the worst" if ranked else "the first"
    return results.only(chosen), f"Shown: {what}, {len(chosen)} of {len(results.labels)} rows."


@dataclass(frozen=True)
class ExperimentReport:
    """What `report` made.

    Attributes:
        page: HTML for a browser.
        table: in the narrow form for a terminal.
        damage: what is wrong with each run that cannot be read, in one line.
    """

    page: Path
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    table: Table
    damage: tuple[str, ...]

    @property
    def text(self) -> str:
        """The table as plain text."""
        return plain_text(self.table)


def report(
    directory: ExperimentDirectory,
    command: str,
    look: Look | None = None,
    choice: TableChoice | None = None,
) -> ExperimentReport:
    """Writes report.html, table.csv, .json, .md, .tex and figures from what runs have left so far.

    Args:
        command: what the user typed, which tables and figures name.
        look: of the figures; their usual one without it.
        choice: of the tables for people; the CSV has every column.

    Raises:
        UserError: if the experiment's own file cannot be read, or see `_refuse_emptiness`.
    """
    results = read_results(directory)
    _refuse_emptiness(directory, results)
    provenance = Provenance.of(results, command)
    table = build_table(results, provenance, choice)
    tables = _write_tables(directory, results, provenance, table)
    figures = draw_all(results, provenance, directory.figures, look)
    _write_page(directory, results, provenance)
    damage = dict.fromkeys(run.error for run in results.runs if run.is_damaged)
    shown = for_terminal(table, provenance.short)
    return ExperimentReport(directory.page, tuple(tables), tuple(figures), shown, tuple(damage))


def write_page(directory: ExperimentDirectory, command: str) -> tuple[str, ...]:
    """Writes the page of an experiment only; what is damaged of its runs, in one line each."""
    results = read_results(directory)
    _refuse_emptiness(directory, results)
    _write_page(directory, results, Provenance.of(results, command))
    return tuple(dict.fromkeys(run.error for run in results.runs if run.is_damaged))


def _refuse_emptiness(directory: ExperimentDirectory, results: Results) -> None:
    """Tables that hold numbers are not replaced by empty ones because the runs are gone.

    Raises:
        UserError: if no run of the experiment file is there, while table.json has measured ones.
    """
    path = directory.table("json")
    if any(run.directory.path.exists() for run in results.runs) or not path.is_file():
        return
    table = read_json(path)
    rows = table.get("rows") if isinstance(table, dict) else None
    if any(isinstance(row, dict) and row.get("n") for row in rows or ()):
        raise UserError(
            f"{directory.runs_directory}: no run of {directory.spec_file} is there, while {path} "
            "has numbers",
            f"restore the runs, or delete {path}",
        )


def _write_page(directory: ExperimentDirectory, results: Results, provenance: Provenance) -> None:
    """The page, and the index that lists it."""
    page = experiment_page(
        results,
        provenance,
        build_table(results, provenance),
        _pictures(results, provenance),
        parts_about(directory, tuple(results.experiment.runs())),
    )
    write_text(directory.page, render(page))
    refresh_index(directory.path.parent)


def _write_tables(
    directory: ExperimentDirectory, results: Results, provenance: Provenance, table: Table
) -> list[Path]:
    frame = table_frame(results, provenance)
    texts = {
        "json": _as_json(results, frame),
        "csv": frame.to_csv(index=False, lineterminator="\n"),
        "md": f"# {results.experiment.name}\n\n{markdown(table)}",
        "tex": latex(table),
    }
    for suffix, text in texts.items():
        write_text(directory.table(suffix), text)
    return [directory.table(suffix) for suffix in texts]


def _as_json(results: Results, frame: "pd.DataFrame") -> str:
    """The rows of the CSV, and every pair of rows compared."""
    content = {
        "schema": "txlbench.table/1",
        "experiment": results.experiment.name,
        "rows": json.loads(frame.to_json(orient="records", double_precision=15)),
        "comparisons": [each.content for each in comparisons(results).values()],
    }
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
