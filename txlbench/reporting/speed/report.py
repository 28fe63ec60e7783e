"""Everything that is shown of a speed.json: its table in three formats and its figure."""

from dataclasses import dataclass
from pathlib import Path

from txlbench.files import write_text
from txlbench.reporting.figures.style import add_foot, save, style
from txlbench.reporting.formats import latex, markdown, plain_text
from txlbench.reporting.speed import figure
from txlbench.reporting.speed.record import read_speed
from txlbench.reporting.speed.table import as_csv, speed_table


@dataclass(frozen=True)
class WrittenSpeed:
    """What `report_speed` made: files, and the table as plain text."""

    paths: tuple[Path, ...]
    text: str


def report_speed(directory: Path, command: str) -> WrittenSpeed:
    """Writes speed.csv, .md, .tex and figures/speed.png, .svg beside a speed.json.

    Args:
        command: what the user typed, which tables and figures name.

    Raises:
        UserError: if the record cannot be read.
    """
    record = read_speed(directory / "speed.json", command)
    table = speed_table(record)
    texts = {
        "csv": as_csv(record),
        "md": f"# Speed of evaluation\n\n{markdown(table)}",
        "tex": latex(table),
    }
    for suffix, text in texts.items():
        write_text(directory / f"speed.{suffix}", text)
    paths = [directory / f"speed.{suffix}" for suffix in texts]
    with style():
        drawn = figure.draw(record)
        add_foot(drawn, record, ())
        paths += save(drawn, directory / "figures" / "speed", figure.TITLE, record)
    return WrittenSpeed(tuple(paths), plain_text(table))
