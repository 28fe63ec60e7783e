"""A heat map of loss: memory in training down, keys that a query sees in evaluation across."""

import math
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from txlbench.config.base import shown
from txlbench.reporting.experiment_results import Results
from txlbench.reporting.figures.attention_length import sweep_frame
from txlbench.reporting.figures.labels import unit_name
from txlbench.reporting.figures.series import unit_of
from txlbench.reporting.figures.style import Drawing, Palette, cut, new_figure, scaled, text_width

CELLS = 0.33
"""The share of a figure's width that all cells have beside long names."""
SMALLEST = 3.5
"""Points below which no number is written."""
DARK = 0.6
"""The share of the colours from which numbers are written in white."""


def draw(results: Results, palette: Palette) -> Drawing | None:  # noqa: ARG001
    """The rows that train with memory; None unless they differ in `train.mem_len`."""
    unit = unit_of(results)
    rows = {
        label: runs[0].config.train.memory
        for label, runs in results.comparable_in(unit)
        if runs[0].config.train.recurrence
    }
    split = results.runs[0].config.evaluate.split
    frame = sweep_frame(results)
    frame = frame[(frame["split"] == split) & frame["label"].isin(list(rows))]
    trained = {label: rows[label] for label in dict.fromkeys(frame["label"])}
    lengths = sorted(set(frame["attention_length"]))
    if len(set(trained.values())) < 2 or len(lengths) < 2:
        return None
    means = frame.pivot_table(index="label", columns="attention_length", values="value")
    values = means.loc[list(trained), lengths].to_numpy()
    figure = new_figure(0.7 + 0.3 * len(trained))
    axes = figure.axes[0]
    norm = _norm(values)
    image = axes.imshow(values, cmap="cividis_r", aspect="auto", norm=norm)
    _write_values(axes, values, unit, norm)
    _mark_trained(axes, list(trained.values()), lengths)
    names = [cut(f"{label} ({memory:,})", scaled(8)) for label, memory in trained.items()]
    axes.set_yticks(range(len(names)), names, fontsize=scaled(8))
    cell = CELLS * mpl.rcParams["figure.figsize"][0] / len(lengths)
    every = math.ceil((text_width(f"{lengths[-1]:,}", scaled(9.5)) + 0.06) / cell)
    places = range((len(lengths) - 1) % every, len(lengths), every)
    axes.set_xticks(places, [f"{lengths[place]:,}" for place in places])
    axes.set_xlabel("attention length in evaluation (keys)")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    bar = figure.colorbar(image, ax=axes, pad=0.02)
    bar.set_label(unit_name(unit))
    bar.outline.set_visible(False)
    bar.ax.minorticks_off()
    several = "; mean over seeds" * (frame["seed"].nunique() > 1)
    subtitle = (
        f"{split}; in brackets: states of memory in training, framed where as many keys are seen; "
        f"bold: the best of each column{several}"
    )
    return Drawing(figure, "Loss by memory in training and evaluation", subtitle)


def _norm(values: NDArray[np.float64]) -> Normalize:
    """From the lowest loss to the highest, but to no more than twice the spread of most."""
    low, middle = np.nanmin(values), np.nanmedian(values)
    return Normalize(low, min(np.nanmax(values), middle + 2 * (middle - low)) or None)


def _write_values(axes: Axes, values: NDArray[np.float64], unit: str, norm: Normalize) -> None:
    """In letters that fit their cells; no numbers where those could not be read."""
    best = np.nanmin(values, axis=0)
    usual, room = scaled(9.5), CELLS * mpl.rcParams["figure.figsize"][0] / values.shape[1]
    widest = max(text_width(shown(each, unit), usual, "bold") for each in values.flat)
    size = min(usual, usual * 0.9 * room / widest)
    if size < SMALLEST:
        return
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            look: dict[str, Any] = {
                "color": "white" if norm(value) > DARK else "black",
                "fontsize": size,
                "weight": "bold" if value == best[column] else "normal",
            }
            axes.text(column, row, shown(value, unit), ha="center", va="center", **look)


def _mark_trained(axes: Axes, memories: list[int], lengths: list[int]) -> None:
    """Frames the cells of as many keys as training had states."""
    for row, memory in enumerate(memories):
        if memory in lengths:
            corner = (lengths.index(memory) - 0.47, row - 0.45)
            frame = Rectangle(corner, 0.94, 0.9, fill=False, edgecolor="#D55E00", linewidth=1.8)
            axes.add_patch(frame)
