"""Validation loss while training, over the smoothed training loss."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

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
from txlbench.reporting.figures.style import PALE, Palette, height_for, new_figure, width_for
from txlbench.reporting.frames import curves_frame

TITLE = "Learning curves"
SMOOTHING = 0.05
"""Half-life of the training loss's moving average, as a share of the points."""
SETTLED = 0.1
"""The vertical axis shows what follows this share of the steps; all start far above it."""


def draw(results: Results, palette: Palette) -> Figure | None:
    """One line a row: mean over seeds on valid; None before anything was validated."""
    unit = unit_of(results)
    lines = dict(results.by_label_in(unit))
    frame = curves_frame(results)
    frame = frame[frame["label"].isin(list(lines))]
    valid = frame[frame["kind"] == "valid"]
    if valid.empty:
        return None
    shown = set(valid["label"])
    names = {k: name_with_state(k, runs) for k, runs in lines.items() if k in shown}
    figure, axes = new_figure(
        TITLE,
        "loss on valid (lines; shaded: range over seeds), training loss smoothed (thin)",
        width_for(names.values()),
        height_for(names),
    )
    ends, values = [], []
    for label, part in each_label(valid, results.labels):
        colour = palette.colour(label)
        found = over_seeds(part, "step")
        draw_range(axes, found, colour)
        axes.plot(
            found.index,
            found["mean"],
            color=colour,
            marker=palette.marker(label),
            markersize=3.5,
            markevery=max(1, len(found) // 12),
            zorder=3,
        )
        settled = found[found.index >= SETTLED * frame["step"].max()]
        values += [*settled["min"], *settled["max"]]
        ends.append(
            End(found.index[-1], found["mean"].iloc[-1], names[label], colour, palette.ink(label))
        )
        if any(run.error for run in lines[label]):
            axes.plot(found.index[-1:], found["mean"].iloc[-1:], "x", color=colour, markersize=8)
    _draw_training(axes, frame[frame["kind"] == "train"], results, palette)
    set_limits(axes, values, unit)
    axes.set_xlim(0, float(frame["step"].max()))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    axes.set(xlabel="training step", ylabel=f"loss ({unit_name(unit)})")
    label_ends(axes, ends)
    return figure


def _draw_training(axes: Axes, train: pd.DataFrame, results: Results, palette: Palette) -> None:
    for label, part in each_label(train, results.labels):
        mean = over_seeds(part, "step")["mean"]
        smooth = mean.ewm(halflife=max(1.0, SMOOTHING * len(mean))).mean()
        axes.plot(smooth.index, smooth, color=palette.colour(label), alpha=PALE, linewidth=0.9)
