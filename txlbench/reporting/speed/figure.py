"""How many times faster than the sliding window, by attention length: the paper's Table 9."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from txlbench.reporting.figures.end_labels import End, label_ends
from txlbench.reporting.figures.style import (
    GREY,
    Palette,
    height_for,
    new_figure,
    width_for,
)
from txlbench.reporting.recl.axis import set_contexts
from txlbench.reporting.speed.record import Line, SpeedRecord
from txlbench.reporting.speed.table import three_digits

TITLE = "Speed of evaluation"
PAPER = "paper (Table 9)"
Point = tuple[int, float, float, float]
"""Attention length, speedup, and its quartiles."""


def draw(record: SpeedRecord) -> Figure:
    """One line a way of reading, on a logarithmic axis; bars are quartiles."""
    curves = {name: _points(lines) for name, lines in record.ways.items()}
    palette = Palette(tuple(curves))
    names = {name: f"{name}: {three_digits(curve[-1][1])}x" for name, curve in curves.items()}
    if record.paper:
        names[PAPER] = PAPER
    figure, axes = new_figure(
        TITLE,
        f"times faster per token than the sliding window of {record.baseline}",
        width_for(names.values()),
        height_for(names),
    )
    axes.set_yscale("log")
    ends = []
    for name, curve in curves.items():
        colour = palette.colour(name)
        _draw_curve(axes, curve, colour, palette.marker(name))
        ends.append(End(curve[-1][0], curve[-1][1], names[name], colour, palette.ink(name)))
    if record.paper:
        lengths, published = list(record.paper), list(record.paper.values())
        style: dict[str, Any] = {"linestyle": (0, (3, 2)), "marker": "x", "markersize": 5}
        axes.plot(lengths, published, color=GREY, **style)
        ends.append(End(lengths[-1], published[-1], PAPER, GREY, to_rgb(GREY)))
    set_contexts(axes, record.lengths, "attention length (keys)")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("times faster (logarithmic)")
    label_ends(axes, ends)
    return figure


def _draw_curve(axes: Axes, curve: list[Point], colour: str, marker: str) -> None:
    lengths, medians, low, high = (list(part) for part in zip(*curve, strict=True))
    # The ratio of medians can lie outside the quartiles of single rounds.
    below = [max(0.0, y - end) for y, end in zip(medians, low, strict=True)]
    above = [max(0.0, end - y) for y, end in zip(medians, high, strict=True)]
    style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4, "capsize": 2}
    axes.errorbar(lengths, medians, [below, above], **style)


def _points(lines: Mapping[int, Line]) -> list[Point]:
    """Attention length, speedup and its quartiles, in order of length."""
    found = [(length, lines[length]["speedup"]) for length in sorted(lines)]
    return [
        (length, each["median"], each["lower_quartile"], each["upper_quartile"])
        for length, each in found
    ]
