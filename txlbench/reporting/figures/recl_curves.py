"""Gain of every step to a longer context, unnormalised, and loss by context length.

As the paper's Figures 3 and 4.
"""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from txlbench.config.base import displayed
from txlbench.records.finding_schema import ReclGroup, ReclRecord, ReclResult
from txlbench.reporting.figures.labels import (
    End,
    label_ends,
    set_contexts,
    set_limits,
    shade,
    unit_name,
)
from txlbench.reporting.figures.style import (
    DASHED,
    GREY,
    NORMAL_95,
    Dashes,
    Drawing,
    Palette,
    height_for,
    key_handle,
    new_figure,
    scaled,
)
from txlbench.reporting.recl import above_null, length


def draw_gains(record: ReclRecord, group: ReclGroup, palette: Palette) -> Drawing:
    """A panel a share r, with one line a model: exp f(c, c) - exp f(c, c') up to each c'."""
    count = len(group.models)
    figure = new_figure(max(2.4, height_for(count) if count > 7 else 0), len(record.r))
    for axes, share in zip(figure.axes, record.r, strict=True):
        _draw_share(axes, record, group, share, palette)
    figure.align_ylabels()
    figure.axes[-1].set_xlabel(f"context grown to ({record.counted_in})")
    title = f"Gain of a longer context{f', group {group.name}' * bool(group.name)}"
    subtitle = "difference of perplexity, with baseline; beside each name RECL (and above the null)"
    return Drawing(figure, title, subtitle, _key())


def _draw_share(
    axes: Axes, record: ReclRecord, group: ReclGroup, share: float, palette: Palette
) -> None:
    last = record.contexts[-1]
    lines = {model: group.result(model, share) for model in group.models}
    limit = record.threshold * np.array(group.baseline(share))
    axes.plot(record.contexts[1:], limit, color=GREY, linestyle=DASHED, linewidth=scaled(1))
    ends = []
    for model, line in lines.items():
        colour = palette.colour(model)
        _draw_line(axes, record, line, colour, palette.dash(model))
        name = f"{model}: {length(line)} ({above_null(line, last)})"
        ink, dash = palette.ink(model), palette.dash(model)
        ends.append(End(last, line.differences[-1], name, colour, ink, dash=dash))
    _set_heights(axes, limit.min(), max(max(line.differences) for line in lines.values()))
    set_contexts(axes, record.contexts[1:], "")
    which = f"all {record.targets}"
    if share != 1:
        which = f"the hardest {share:.0%} of {record.targets}"
    axes.set_title(f"r = {share:g}: {which}", fontsize=scaled(9.5), loc="left")
    axes.set_ylabel("perplexity difference\n(symlog scale)")
    label_ends(axes, ends)


def _set_heights(axes: Axes, limit: float, top: float) -> None:
    """Logarithmic above the threshold, where gains span decades, and linear down to 0 below."""
    top = 1.3 * max(top, 2 * limit)
    axes.set_yscale("symlog", linthresh=limit, linscale=0.3)
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


def _draw_line(axes: Axes, record: ReclRecord, line: ReclResult, colour: str, dash: Dashes) -> None:
    """Filled where the step counts above the null, open where by the paper's rule only."""
    gains, net_gains, p = map(np.array, (line.gains, line.net_gains, line.p))
    counts = gains >= record.threshold
    above = counts & (net_gains >= record.threshold) & (p <= record.level)
    where, heights = np.array(record.contexts[1:]), np.array(line.differences)
    axes.plot(where, heights, color=colour, linestyle=dash, zorder=2)
    looks = (
        (above, "o", 6.0, colour, "white"),
        (counts & ~above, "o", 5.5, "white", colour),
        (~counts, "x", 5.0, colour, colour),
    )
    for which, marker, size, face, edge in looks:
        if which.any():  # a line without points would lie at the figure's corner
            axes.plot(
                where[which],
                heights[which],
                linestyle="none",
                marker=marker,
                markersize=scaled(size),
                color=colour,
                mfc=face,
                mec=edge,
                mew=scaled(0.8 if edge == "white" else 1.4),
                clip_on=False,
                zorder=3,
            )


def _key() -> tuple[Line2D, ...]:
    return (
        key_handle("above the null", "none", marker="o"),
        key_handle("by the paper's rule only", "none", marker="o", mfc="white"),
        key_handle("too little", "none", marker="x"),
        key_handle("threshold, below which the scale is linear", DASHED, linewidth=scaled(1)),
    )


def draw_losses(record: ReclRecord, group: ReclGroup, palette: Palette) -> Drawing:
    """One line a model: all tokens, each given exactly so many predecessors."""
    curves = {
        model: [displayed(loss, record.unit) for loss in group.losses[model]]
        for model in group.models
    }
    figure = new_figure(height_for(len(curves)))
    (axes,) = figure.axes
    contexts = record.contexts
    ends, shaded = [], list[float]()
    for model, values in curves.items():
        colour, marker = palette.colour(model), palette.marker(model)
        dash = palette.dash(model)
        axes.plot(
            contexts, values, color=colour, linestyle=dash, marker=marker, markersize=scaled(4)
        )
        if group.loss_errors:
            pairs = list(zip(group.losses[model], group.loss_errors[model], strict=True))
            low, high = (
                [displayed(loss + side * NORMAL_95 * error, record.unit) for loss, error in pairs]
                for side in (-1, 1)
            )
            shade(axes, contexts, low, high, colour, len(curves))
            shaded += [*low, *high]
        ends.append(End(contexts[-1], values[-1], model, colour, palette.ink(model), dash=dash))
    heights = [value for curve in curves.values() for value in curve]
    set_limits(axes, [*heights, *shaded], record.unit)
    set_contexts(axes, contexts, f"context length ({record.counted_in})")
    axes.set_ylabel(f"loss ({unit_name(record.unit, axes.get_yscale())})")
    label_ends(axes, ends)
    title = f"Loss by context length{f', group {group.name}' * bool(group.name)}"
    given = "exactly so many predecessors" if record.unit != "bpb" else "so many bytes before it"
    subtitle = f"{group.tokens:,} {record.targets}, each given {given}"
    subtitle += f"; shaded: 95 % for the sampling of {record.targets}" * bool(shaded)
    return Drawing(figure, title, subtitle)
