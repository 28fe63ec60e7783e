"""Loss by context, measured and known: a panel without memory resets, and one with them."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from txlbench.config.units import displayed
from txlbench.reporting.figures.style import GREY, Palette
from txlbench.reporting.recl.axis import set_contexts
from txlbench.reporting.truth.record import TruthRecord

TITLE = "Measured and known loss by context"
PANELS = {False: "trained without memory resets", True: "trained with memory resets"}


def draw(record: TruthRecord) -> Figure:
    """Solid lines with markers: measured; dashed ones: the best that is possible."""
    palette = Palette(tuple(dict.fromkeys(map(_name, record.rows))))
    shown = [resets for resets in PANELS if any(_has(row, resets) for row in record.rows)]
    figure = Figure(figsize=(3.6 * len(shown) + 1.7, 4.2), layout="constrained")
    figure.suptitle(TITLE, x=0.01, ha="left", fontsize=11, fontweight="bold")
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for panel, resets in zip(panels, shown, strict=True):
        panel.set_title(PANELS[resets], fontsize=9.5, fontweight="normal", pad=6)
        for row in record.rows:
            if _has(row, resets):
                _draw_row(panel, record.contexts, row, palette)
        set_contexts(panel, record.contexts, "context length (tokens)")
    panels[0].set_ylabel("loss (bits per character)")
    figure.legend(handles=_key(palette), loc="outside right center")
    return figure


def _has(row: Mapping[str, Any], resets: bool) -> bool:
    return bool(row["memory_reset"]) == resets


def _name(row: Mapping[str, Any]) -> str:
    return f"memory {row['mem_len']}"


def _draw_row(
    axes: Axes, contexts: Sequence[int], row: Mapping[str, Any], palette: Palette
) -> None:
    measured, known = (
        [displayed(loss, "bpc") for loss in losses] for losses in (row["losses"], row["known"])
    )
    colour, marker = palette.colour(_name(row)), palette.marker(_name(row))
    axes.plot(contexts, known, color=colour, linestyle="--", linewidth=1.1, zorder=1)
    axes.plot(contexts, measured, color=colour, marker=marker, markersize=4, zorder=2)


def _key(palette: Palette) -> list[Line2D]:
    lines = [
        Line2D([], [], color=palette.colour(name), marker=palette.marker(name), ms=4, label=name)
        for name in palette.labels
    ]
    return [*lines, Line2D([], [], color=GREY, linestyle="--", linewidth=1.1, label="known")]
