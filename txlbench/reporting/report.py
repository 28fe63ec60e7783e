"""Everything an experiment shows: its table in three formats and its figures, written out.

All figures of an experiment: which there are, and how they are written.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from matplotlib.figure import Figure

from txlbench.files import write_text
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.reporting.experiment_results import Results, read_results
from txlbench.reporting.figures import attention_length, learning_curves, losses
from txlbench.reporting.figures.series import unit_of
from txlbench.reporting.figures.style import Palette, add_foot, remove, save, style
from txlbench.reporting.frames import table_frame
from txlbench.reporting.provenance import Provenance
from txlbench.reporting.rows import build_rows
from txlbench.reporting.table import Table, build_table, for_terminal, latex, markdown, plain_text

FIGURES: dict[str, tuple[str, Callable[[Results, Palette], Figure | None]]] = {
    "learning_curves": (learning_curves.TITLE, learning_curves.draw),
    "attention_length": (attention_length.TITLE, attention_length.draw),
    "loss_by_row": (losses.LOSS_BY_ROW_TITLE, losses.draw_loss_by_row),
    "loss_by_position": (losses.LOSS_BY_POSITION_TITLE, losses.draw_loss_by_position),
}
"""File name -> (title, what draws it, or None where the records hold nothing for it)."""


def draw_all(results: Results, provenance: Provenance, folder: Path) -> list[Path]:
    """Writes every figure that the records allow as PNG and SVG into `folder`."""
    palette = Palette(results.labels)
    missing = list(results.left_out(unit_of(results)))
    written = []
    with style():
        for name, (title, draw) in FIGURES.items():
            figure = draw(results, palette)
            if figure is None:
                remove(folder / name)  # of an earlier state of the records
                continue
            add_foot(figure, provenance, missing if name != "learning_curves" else ())
            written += save(figure, folder / name, title, provenance)
    return written


@dataclass(frozen=True)
class Written:
    """What `report` made.

    Attributes:
        table: in the narrow form for a terminal.
        damage: what is wrong with each run that cannot be read, in one line.
    """

    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    table: Table
    damage: tuple[str, ...]

    @property
    def text(self) -> str:
        """The table as plain text."""
        return plain_text(self.table)


def report(directory: ExperimentDirectory, command: str) -> Written:
    """Writes table.csv, .md, .tex and figures/*.png, .svg from what the runs have left so far.

    Args:
        command: what the user typed, which tables and figures name.

    Raises:
        UserError: if the experiment's own file cannot be read.
    """
    results = read_results(directory)
    provenance = Provenance.of(results, command)
    table = build_table(results, provenance)
    tables = _write_tables(directory, results, provenance, table)
    figures = draw_all(results, provenance, directory.figures)
    damage = dict.fromkeys(run.error for run in results.runs if run.is_damaged)
    shown = for_terminal(table, provenance.short)
    return Written(tuple(tables), tuple(figures), shown, tuple(damage))


def _write_tables(
    directory: ExperimentDirectory, results: Results, provenance: Provenance, table: Table
) -> list[Path]:
    frame = table_frame(build_rows(results), provenance)
    texts = {
        "csv": frame.to_csv(index=False, lineterminator="\n"),
        "md": f"# {results.experiment.name}\n\n{markdown(table)}",
        "tex": latex(table),
    }
    for suffix, text in texts.items():
        write_text(directory.table(suffix), text)
    return [directory.table(suffix) for suffix in texts]
