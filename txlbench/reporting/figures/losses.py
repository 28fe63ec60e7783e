"""Final losses of all rows beside each other, with intervals, in the order measured.

Loss at each position of a segment: without recurrence the first tokens lack context.
"""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from txlbench.config.base import displayed, shown
from txlbench.reporting.experiment_results import Results
from txlbench.reporting.figures.labels import End, label_ends
from txlbench.reporting.figures.series import (
    draw_range,
    each_label,
    name_with_state,
    over_seeds,
    set_limits,
    unit_name,
    unit_of,
)
from txlbench.reporting.figures.style import (
    GREY,
    PALE,
    Palette,
    add_key,
    height_for,
    new_figure,
    width_for,
)
from txlbench.reporting.frames import positions_frame
from txlbench.reporting.rows import Estimate, Row, best_loss, build_rows, init_loss

LOSS_BY_POSITION_TITLE = "Loss within the segment: context fragmentation"
LOGARITHMIC_FROM = 32
"""Longer segments stand on a log scale, as what happens is at their start."""
BIN = 1.12
"""There positions are averaged in bins each this much longer than the last; the first are alone."""


def draw_loss_by_position(results: Results, palette: Palette) -> Figure | None:
    """One line a row over the segment's positions; None without such records."""
    unit = unit_of(results)
    lines = dict(results.comparable_in(unit))
    frame = positions_frame(results)
    frame = binned(frame[frame["label"].isin(list(lines))], unit)
    if frame.empty:
        return None
    split = results.runs[0].config.evaluate.split
    shown = set(frame["label"])
    names = {k: name_with_state(k, runs) for k, runs in lines.items() if k in shown}
    figure, axes = new_figure(
        LOSS_BY_POSITION_TITLE,
        f"{split}; falling: the first tokens lack context{_trained_only(results)}",
        width_for(names.values()),
        height_for(names),
    )
    ends, values = [], []
    for label, part in each_label(frame, results.labels):
        found, colour = over_seeds(part, "position"), palette.colour(label)
        draw_range(axes, found, colour)
        marker = palette.marker(label)
        axes.plot(found.index, found["mean"], color=colour, marker=marker, markersize=3.5)
        values += [*found["min"], *found["max"]]
        last = found["mean"].iloc[-1]
        ends.append(End(found.index[-1], last, names[label], colour, palette.ink(label)))
    set_limits(axes, values, unit)
    _set_positions(axes, float(frame["position"].max()))
    axes.set(xlabel="position in the segment (tokens)", ylabel=f"loss ({unit_name(unit)})")
    label_ends(axes, ends)
    return figure


def _trained_only(results: Results) -> str:
    """What the subtitle says where half loss leaves positions out."""
    left_out = any(run.untrained_positions for run in results.runs)
    return "; half loss: trained positions only" if left_out else ""


def binned(frame: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Positions averaged (in nats) in bins that grow, where the segment is long."""
    longest = frame["position"].max() if len(frame) else 0
    if longest <= LOGARITHMIC_FROM:
        return frame
    steps = int(np.log(longest) / np.log(BIN)) + 2
    edges = np.unique(np.floor(BIN ** np.arange(steps)).astype(int))
    bins = np.searchsorted(edges, frame["position"], side="right")
    means = frame.groupby(["label", "seed", bins], sort=False)[["position", "loss"]].mean()
    means["value"] = [displayed(loss, unit) for loss in means["loss"]]
    return means.reset_index(["label", "seed"])


def _set_positions(axes: Axes, longest: float) -> None:
    if longest > LOGARITHMIC_FROM:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda position, _: f"{position:,.0f}"))
    else:
        axes.set_xlim(0.5, longest + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))


LOSS_BY_ROW_TITLE = "Loss by row"
OFFSET = 0.14
"""Init stands this much above its row's line, best as much below."""


def draw_loss_by_row(results: Results, palette: Palette) -> Figure | None:
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
    figure, axes = new_figure(LOSS_BY_ROW_TITLE, subtitle, width_for(names), 1.9 + 0.4 * len(rows))
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
