"""All figures of an experiment: which there are, and how they are written."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from txlbench.reporting.figures import (
    attention_length,
    learning_curves,
    loss_by_position,
    loss_by_row,
)
from txlbench.reporting.figures.series import unit_of
from txlbench.reporting.figures.style import Palette, add_foot, remove, save, style
from txlbench.reporting.provenance import Provenance
from txlbench.reporting.results import Results

FIGURES: dict[str, tuple[str, Callable[[Results, Palette], Figure | None]]] = {
    "learning_curves": (learning_curves.TITLE, learning_curves.draw),
    "attention_length": (attention_length.TITLE, attention_length.draw),
    "loss_by_row": (loss_by_row.TITLE, loss_by_row.draw),
    "loss_by_position": (loss_by_position.TITLE, loss_by_position.draw),
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
