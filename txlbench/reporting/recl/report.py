"""Everything that is shown of a recl.json: its tables in three formats and its figures."""

from pathlib import Path

from txlbench.files import write_text
from txlbench.reporting.figures.style import Palette, add_foot, save, style
from txlbench.reporting.formats import latex, markdown, plain_text
from txlbench.reporting.recl import gain_figure, loss_figure
from txlbench.reporting.recl.csv_lines import as_csv
from txlbench.reporting.recl.record import ReclRecord, read_recl
from txlbench.reporting.recl.table import main_table, sensitivity_table, subgroup_table
from txlbench.reporting.recl.words import explanations
from txlbench.reporting.table import Table
from txlbench.reporting.written import Written

FIGURES = {"recl_gain": gain_figure, "recl_loss": loss_figure}
"""File name -> what draws it, one file a group."""


def report_recl(directory: Path, command: str) -> Written:
    """Writes recl.csv, .md, .tex and figures/recl_*.png, .svg beside a recl.json.

    Args:
        command: what the user typed, which tables and figures name.

    Raises:
        UserError: if the record cannot be read.
    """
    record = read_recl(directory / "recl.json", command)
    table = main_table(record)
    paths = _write_tables(directory, record, table)
    paths += _draw_figures(directory / "figures", record)
    shown = Table(table.columns, tuple(explanations(record)), record.short)
    return Written(tuple(paths), plain_text(shown))


def _write_tables(directory: Path, record: ReclRecord, table: Table) -> list[Path]:
    parts = [("Relative effective context length", table)]
    parts.append(("Other steps, first contexts and thresholds", sensitivity_table(record)))
    subgroups = subgroup_table(record)
    if subgroups.rows:
        parts.append(("Smaller groups", subgroups))
    texts = {
        "csv": as_csv(record),
        "md": "\n".join(f"# {title}\n\n{markdown(part)}" for title, part in parts),
        "tex": latex(table),
    }
    for suffix, text in texts.items():
        write_text(directory / f"recl.{suffix}", text)
    return [directory / f"recl.{suffix}" for suffix in texts]


def _draw_figures(folder: Path, record: ReclRecord) -> list[Path]:
    palette = Palette(record.models)
    paths = []
    with style():
        for name, module in FIGURES.items():
            for group in record.groups():
                figure = module.draw(record, group, palette)
                add_foot(figure, record, ())
                stem = folder / f"{name}{f'-{group.name}' * bool(group.name)}"
                paths += save(figure, stem, module.TITLE, record)
    return paths
