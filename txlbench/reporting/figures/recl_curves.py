"""Loss by context length: the paper's Figure 4.

Gain of every step to a longer context, unnormalised: the paper's Figure 3.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from txlbench.config.base import displayed
from txlbench.reporting.figures.labels import End, label_ends, set_contexts
from txlbench.reporting.figures.style import (
    GREY,
    Palette,
    add_key,
    height_for,
    new_figure,
    width_for,
)
from txlbench.reporting.recl import Group, ReclRecord, above_null, length

GAINS_TITLE = "Gain of a longer context"
SHARE = 0.1
"""The paper's figure is at this r; without it the smallest is shown."""


def draw_gains(record: ReclRecord, group: Group, palette: Palette) -> Figure:
    """One line a model: exp f(c, c) - exp f(c, c') for each c and the next c'."""
    share = SHARE if SHARE in record.shares else min(record.shares)
    lines = {model: group.result(model, share) for model in group.models}
    last = record.contexts[-1]
    names = {
        model: f"{model}: {length(line)} ({above_null(line, last)})"
        for model, line in lines.items()
    }
    figure, axes = new_figure(
        f"{GAINS_TITLE}{f', group {group.name}' * bool(group.name)}",
        f"the hardest {share:.0%} of tokens; beside each name RECL (and above the null)",
        width_for(names.values()),
        height_for(names),
    )
    limit = record.threshold * np.array(group.baseline(share))
    axes.plot(record.contexts[1:], limit, color=GREY, linestyle=(0, (3, 2)), linewidth=1)
    ends = []
    for model, line in lines.items():
        colour = palette.colour(model)
        _draw_line(axes, record, line, colour)
        ends.append(End(last, line["differences"][-1], names[model], colour, palette.ink(model)))
    _set_heights(axes, limit.min(), max(max(line["differences"]) for line in lines.values()))
    set_contexts(axes, record.contexts[1:], "context grown to (tokens)")
    axes.set_ylabel("perplexity difference (with baseline)")
    add_key(axes, _legend())
    label_ends(axes, ends)
    return figure


def _set_heights(axes: Axes, limit: float, top: float) -> None:
    """Logarithmic above the threshold, where gains span decades, and linear down to 0 below."""
    top = 1.5 * max(top, 2 * limit)
    axes.set_yscale("symlog", linthresh=limit, linscale=0.6)
    axes.yaxis.set_major_locator(FixedLocator([0.0, *_round_numbers(limit, top)]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_ylim(-0.12 * limit, top)


def _round_numbers(low: float, high: float) -> list[float]:
    """Powers of ten between the two; where that is fewer than three, twice and five times them."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1,), (1, 2, 5)):
        numbers = [digit * 10.0**power for power in decades for digit in digits]
        found = [number for number in numbers if low <= number <= high]
        if len(found) > 2:
            break
    return found


def _draw_line(axes: Axes, record: ReclRecord, line: Mapping[str, Any], colour: str) -> None:
    """Filled where the step counts above the null, open where by the paper's rule only."""
    gains, net_gains, p = (np.array(line[key]) for key in ("gains", "net_gains", "p"))
    counts = gains >= record.threshold
    above = counts & (net_gains >= record.threshold) & (p <= record.level)
    where, heights = np.array(record.contexts[1:]), np.array(line["differences"])
    axes.plot(where, heights, color=colour, zorder=2)
    style: dict[str, Any] = {"color": colour, "linestyle": "none", "clip_on": False, "zorder": 3}
    merely = counts & ~above
    axes.plot(where[above], heights[above], "o", markersize=6, mec="white", mew=0.8, **style)
    axes.plot(where[merely], heights[merely], "o", markersize=5.5, mfc="white", mew=1.4, **style)
    axes.plot(where[~counts], heights[~counts], "x", markersize=5, mew=1.4, **style)


def _legend() -> list[Line2D]:
    style: dict[str, Any] = {"color": GREY, "linestyle": "none"}
    return [
        Line2D([], [], marker="o", markersize=6, label="above the null", **style),
        Line2D([], [], marker="o", mfc="white", label="by the paper's rule only", **style),
        Line2D([], [], marker="x", label="too little", **style),
        Line2D([], [], color=GREY, linestyle=(0, (3, 2)), linewidth=1, label="threshold"),
    ]


LOSSES_TITLE = "Loss by context length"


def draw_losses(record: ReclRecord, group: Group, palette: Palette) -> Figure:
    """One line a model: all tokens, each given exactly so many predecessors."""
    curves = {
        model: [displayed(loss, record.unit) for loss in group.content["losses"][model]]
        for model in group.models
    }
    figure, axes = new_figure(
        f"{LOSSES_TITLE}{f', group {group.name}' * bool(group.name)}",
        f"{group.content['tokens']:,} tokens, each given exactly so many predecessors",
        width_for(curves),
        height_for(curves),
    )
    contexts = record.contexts
    for model, values in curves.items():
        axes.plot(
            contexts,
            values,
            color=palette.colour(model),
            marker=palette.marker(model),
            markersize=4,
        )
    values = [value for curve in curves.values() for value in curve]
    margin = 0.06 * (max(values) - min(values)) or 0.05 * max(values)
    axes.set_ylim(min(values) - margin, max(values) + margin)
    set_contexts(axes, contexts, "context length (tokens)")
    axes.set_ylabel("loss (bits per character)" if record.unit == "bpc" else "loss (perplexity)")
    ends = [
        End(contexts[-1], curve[-1], model, palette.colour(model), palette.ink(model))
        for model, curve in curves.items()
    ]
    label_ends(axes, ends)
    return figure
