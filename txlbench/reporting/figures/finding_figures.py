"""Loss by context, measured and known: a panel without memory resets, and one with them.

How many times faster than the sliding window, by attention length: the paper's Table 9.

Speeds as bars on a logarithmic axis, with their spread.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from txlbench.config.base import displayed
from txlbench.reporting.bench import BenchRecord, name_of
from txlbench.reporting.figures.labels import End, label_ends, set_contexts
from txlbench.reporting.figures.style import (
    COLOURS,
    GREY,
    Palette,
    height_for,
    new_figure,
    width_for,
)
from txlbench.reporting.speed import Line, SpeedRecord, three_digits
from txlbench.reporting.truth import TruthRecord

SPEED_TITLE = "Speed of evaluation"
PAPER = "paper (Table 9)"
Point = tuple[int, float, float, float]
"""Attention length, speedup, and its quartiles."""


def draw_speed(record: SpeedRecord) -> Figure:
    """One line a way of reading, on a logarithmic axis; bars are quartiles."""
    curves = {name: _points(lines) for name, lines in record.ways.items()}
    palette = Palette(tuple(curves))
    names = {name: f"{name}: {three_digits(curve[-1][1])}x" for name, curve in curves.items()}
    if record.paper:
        names[PAPER] = PAPER
    figure, axes = new_figure(
        SPEED_TITLE,
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


BENCH_TITLE = "Speed"


def draw_bench(record: BenchRecord) -> Figure:
    """One bar a workload, the median written at its end."""
    results = record.results
    names = [name_of(result) for result in results]
    rates = [result["tokens_per_second"] for result in results]
    figure, axes = new_figure(
        BENCH_TITLE, "tokens a second: median, lowest and highest", 7.2, 1.8 + 0.34 * len(results)
    )
    places = range(len(results))
    medians = [rate["median"] for rate in rates]
    spread = [
        [rate["median"] - rate["min"] for rate in rates],
        [rate["max"] - rate["median"] for rate in rates],
    ]
    works = list(dict.fromkeys(result["work"] for result in results))
    colours = [COLOURS[works.index(result["work"])] for result in results]
    axes.barh(places, medians, xerr=spread, color=colours, height=0.62, ecolor="#444444")
    for place, rate in zip(places, rates, strict=True):
        axes.annotate(
            f"{rate['median']:,.0f}",
            (rate["max"], place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
        )
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_xlim(min(medians) / 3, max(medians) * 3)
    axes.set_xlabel("tokens a second (logarithmic)")
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    return figure


TRUTH_TITLE = "Measured and known loss by context"
PANELS = {False: "trained without memory resets", True: "trained with memory resets"}


def draw_truth(record: TruthRecord) -> Figure:
    """Solid lines with markers: measured; dashed ones: the best that is possible."""
    palette = Palette(tuple(dict.fromkeys(map(_name, record.rows))))
    shown = [resets for resets in PANELS if any(_has(row, resets) for row in record.rows)]
    figure = Figure(figsize=(3.6 * len(shown) + 1.7, 4.2), layout="constrained")
    figure.suptitle(TRUTH_TITLE, x=0.01, ha="left", fontsize=11, fontweight="bold")
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
