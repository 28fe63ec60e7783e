"""Loss at each position of a segment: without recurrence the first tokens lack context."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from txlbench.config.units import displayed
from txlbench.reporting.figures.end_labels import End, label_ends
from txlbench.reporting.figures.series import (
    draw_range,
    each_label,
    name_with_state,
    over_seeds,
    set_limits,
    unit_name,
    unit_of,
)
from txlbench.reporting.figures.style import Palette, height_for, new_figure, width_for
from txlbench.reporting.frames import positions_frame
from txlbench.reporting.results import Results

TITLE = "Loss within the segment: context fragmentation"
LOGARITHMIC_FROM = 32
"""Longer segments stand on a log scale, as what happens is at their start."""
BIN = 1.12
"""There positions are averaged in bins each this much longer than the last; the first are alone."""


def draw(results: Results, palette: Palette) -> Figure | None:
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
        TITLE,
        f"{split}; flat: memory bridges the cut; falling: the first tokens lack context",
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
