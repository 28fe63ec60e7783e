"""Figures of one line a row: the mean over seeds, the range that they span, a name at the end."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from txlbench.config.base import shown
from txlbench.reporting.experiment_results import Results, RunResult
from txlbench.reporting.figures.labels import End, label_ends, set_limits, shade, unit_name
from txlbench.reporting.figures.style import Palette, height_for, new_figure, scaled

Runs = tuple[RunResult, ...]


class LineFigure:
    """A figure of one line a row, which `add` draws and `finish` names.

    Attributes:
        names: label -> what is written at the line's end.
    """

    def __init__(self, rows: Mapping[str, Runs], palette: Palette, unit: str) -> None:
        self.figure = new_figure(height_for(len(rows)))
        self.axes = self.figure.axes[0]
        self.names = {label: name_with_state(label, runs) for label, runs in rows.items()}
        self._palette = palette
        self._unit = unit
        self._lines: dict[str, pd.Series] = {}

    def add(self, label: str, found: pd.DataFrame, with_markers: bool = True) -> None:
        """Draws mean, min and max of a row at each point; what lies between the two is shaded."""
        colour = self._palette.colour(label)
        if (found["max"] > found["min"]).any():
            places = found.index.to_numpy()
            shade(self.axes, places, found["min"], found["max"], colour, len(self.names))
        if with_markers:
            marker = self._palette.marker(label)
            self.axes.plot(
                found.index,
                found["mean"],
                color=colour,
                linestyle=self._palette.dash(label),
                marker=marker,
                markersize=scaled(4),
                markevery=max(1, len(found) // 12),
                zorder=3,
            )
        self._lines[label] = found["mean"]

    def finish(self, heights: Sequence[float], xlabel: str) -> None:
        """Sets the vertical axis around `heights`, and names the axes and every line."""
        axes, palette = self.axes, self._palette
        set_limits(axes, heights, self._unit)
        axes.set(xlabel=xlabel, ylabel=f"loss ({unit_name(self._unit, axes.get_yscale())})")
        ends = []
        for label, mean in self._lines.items():
            colour, last = palette.colour(label), float(mean.iloc[-1])
            beyond = f"↑ {shown(last, self._unit)}"
            name = self.names[label]
            ink, dash = palette.ink(label), palette.dash(label)
            ends.append(End(mean.index[-1], last, name, colour, ink, beyond, dash))
            _mark_exit(axes, mean, colour)
        label_ends(axes, ends)


def _mark_exit(axes: Axes, mean: pd.Series, colour: str) -> None:
    """An arrow head where a line leaves the axes at the top for good."""
    points = np.column_stack([mean.index.to_numpy(dtype=float), mean.to_numpy()])
    x, y = axes.transAxes.inverted().transform(axes.transData.transform(points)).T
    if y[-1] <= 1:
        return
    inside = np.flatnonzero(y <= 1)
    place = x[-1]
    if len(inside):
        last = inside[-1]
        place = x[last] + (x[last + 1] - x[last]) * (1 - y[last]) / (y[last + 1] - y[last])
    axes.plot([place], [1], "^", color=colour, transform=axes.transAxes, clip_on=False, zorder=4)


def by_label(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Label -> its lines, in the order in which labels first occur."""
    return {str(label): part for label, part in frame.groupby("label", sort=False)}


def over_seeds(frame: pd.DataFrame, along: str) -> pd.DataFrame:
    """Mean, min and max of `value` at each point where every seed has one, in order."""
    grouped = frame.groupby(along)["value"].agg(["mean", "min", "max", "count"]).sort_index()
    return grouped[grouped["count"] == grouped["count"].max()]


def seeds_of(frame: pd.DataFrame) -> str:
    """What a subtitle says of shaded ranges, where there are any."""
    return "; shaded: range over seeds" if frame["seed"].nunique() > 1 else ""


def unit_of(results: Results) -> str:
    """The unit of the experiment's first row; rows in another are left out of a figure."""
    return results.runs[0].unit


def name_with_state(label: str, runs: Sequence[RunResult]) -> str:
    """The label, with what a reader must know before comparing the line.

    Settings of a grid are told by their values where these are words.
    """
    label = " ".join(map(_setting, label.split(" "))) if "=" in label else label
    marks = []
    untrained = sum(not run.did_train for run in runs)
    if untrained:
        seeds = f"{untrained} of {len(runs)} seeds " if len(runs) > 1 else ""
        marks.append(f"{seeds}did not train")
    if any(run.is_incoherent for run in runs):
        marks.append("incoherent")
    states = {run.state for run in runs if run.error}
    return f"{label} ({', '.join([*marks, *sorted(states)])})" if marks or states else label


def _setting(part: str) -> str:
    """`xl` for encoding=xl, `recurrence` or `no recurrence` for a setting that is on or off."""
    key, _, value = part.rpartition("=")
    known = {"true": key, "false": f"no {key}"}
    return known.get(value, value) if key and value[:1].isalpha() else part
