"""Everything an experiment shows: its table in three formats and its figures, written out."""

from dataclasses import dataclass
from pathlib import Path

from txlbench.files import write_text
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.reporting.figures.gallery import draw_all
from txlbench.reporting.formats import latex, markdown, plain_text
from txlbench.reporting.frames import table_frame
from txlbench.reporting.provenance import Provenance
from txlbench.reporting.results import Results, read_results
from txlbench.reporting.rows import build_rows
from txlbench.reporting.table import Table, build_table, for_terminal


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
