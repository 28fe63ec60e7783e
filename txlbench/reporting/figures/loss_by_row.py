"""Final losses of all rows beside each other, with intervals, in the order measured."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from txlbench.config.units import shown
from txlbench.reporting.figures.series import name_with_state, unit_name, unit_of
from txlbench.reporting.figures.style import GREY, PALE, Palette, add_key, new_figure, width_for
from txlbench.reporting.results import Results
from txlbench.reporting.rows import Row, best_loss, build_rows, init_loss
from txlbench.reporting.statistics import Estimate

TITLE = "Loss by row"
OFFSET = 0.14
"""Init stands this much above its row's line, best as much below."""


def draw(results: Results, palette: Palette) -> Figure | None:
    """Init (open) and best (filled) of each row, lowest best at the top; None without results."""
    unit = unit_of(results)
    comparable = dict(results.comparable_in(unit))
    rows = [row for row in build_rows(results) if row.label in comparable]
    if not rows:
        return None
    rows.sort(key=lambda row: row.best.mean if row.best else 0.0)
    seeds = max(len(row.scored) for row in rows)
    interval = "bars: 95 % t-interval, dots: seeds" if seeds > 1 else "one seed: no intervals"
    split = rows[0].first.config.evaluate.split
    names = [name_with_state(row.label, row.runs) for row in rows]
    subtitle = f"{split}, lowest first; {interval}"
    figure, axes = new_figure(TITLE, subtitle, width_for(names), 1.9 + 0.4 * len(rows))
    for height, row in enumerate(rows):
        _draw_row(axes, row, height, palette)
    axes.set_yticks(range(len(rows)), names, color="black")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.08)
    axes.set_xlabel(f"loss ({unit_name(unit)})")
    add_key(axes, _legend())
    return figure


def _draw_row(axes: Axes, row: Row, height: int, palette: Palette) -> None:
    colour = palette.colour(row.label)
    assert row.init is not None
    assert row.best is not None
    axes.plot(
        [row.init.mean, row.best.mean],
        [height - OFFSET, height + OFFSET],
        color=colour,
        alpha=PALE,
        linewidth=1.2,
    )
    for loss, found, offset in ((init_loss, row.init, -OFFSET), (best_loss, row.best, OFFSET)):
        seeds = list(row.values(loss).values())
        if len(seeds) > 1:
            axes.plot(seeds, [height + offset] * len(seeds), ".", color=colour, alpha=PALE)
        _draw_estimate(axes, found, height + offset, colour, filled=loss is best_loss)
    axes.annotate(
        shown(row.best.mean, row.unit),
        (1.01, height),
        xycoords=("axes fraction", "data"),
        va="center",
        color=palette.ink(row.label),
        fontsize=8.8,
    )


def _draw_estimate(axes: Axes, found: Estimate, y: float, colour: str, filled: bool) -> None:
    axes.errorbar(
        [found.mean],
        [y],
        xerr=None if found.half_width is None else [found.half_width],
        marker="D" if filled else "o",
        markersize=6 if filled else 6.5,
        markerfacecolor=colour if filled else "white",
        color=colour,
        elinewidth=1.3,
        capsize=2.5,
        zorder=3,
    )


def _legend() -> list[Line2D]:
    style: dict[str, Any] = {"color": GREY, "linestyle": "none", "markersize": 6.5}
    return [
        Line2D([], [], marker="o", markerfacecolor="white", label="init", **style),
        Line2D([], [], marker="D", label="best (number)", **style),
    ]
