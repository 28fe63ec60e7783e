"""Everything that is shown of a truth.json: a page, its table in three formats, a figure."""

from pathlib import Path

from txlbench.files import write_text
from txlbench.reporting.figures.style import add_foot, save, style
from txlbench.reporting.formats import latex, markdown, plain_text
from txlbench.reporting.truth import figure
from txlbench.reporting.truth.csv_lines import as_csv
from txlbench.reporting.truth.record import TruthRecord, read_truth
from txlbench.reporting.truth.table import context_table, main_table
from txlbench.reporting.written import Written


def report_truth(directory: Path, command: str) -> Written:
    """Writes truth.md, .csv, .tex and figures/truth.png, .svg beside a truth.json.

    Raises:
        UserError: if the record cannot be read.
    """
    record = read_truth(directory / "truth.json", command)
    table = main_table(record)
    texts = {"md": _page(record), "csv": as_csv(record), "tex": latex(table)}
    for suffix, text in texts.items():
        write_text(directory / f"truth.{suffix}", text)
    with style():
        drawn = figure.draw(record)
        add_foot(drawn, record, ())
        figures = save(drawn, directory / "figures" / "truth", figure.TITLE, record)
    paths = [*(directory / f"truth.{suffix}" for suffix in texts), *figures]
    return Written(tuple(paths), plain_text(table))


def _page(record: TruthRecord) -> str:
    return "\n".join(
        [
            "# Measured against known\n",
            markdown(main_table(record)),
            f"![{figure.TITLE}](figures/truth.png)\n",
            "## Loss by context\n",
            markdown(context_table(record)),
        ]
    )
