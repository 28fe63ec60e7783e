"""Loss by context with its power law, what a longer context costs, and mutual information."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from txlbench.config.base import displayed
from txlbench.records.context_schema import ContextGroup, ContextRecord, Exponent, Interval
from txlbench.reporting.context import in_unit, unit_of_loss
from txlbench.reporting.figures.labels import (
    End,
    label_ends,
    set_contexts,
    set_limits,
    set_logarithmic,
    shade,
    unit_name,
)
from txlbench.reporting.figures.style import (
    DASHED,
    Drawing,
    Palette,
    height_for,
    key_handle,
    new_figure,
    scaled,
)


def draw_curves(record: ContextRecord, group: ContextGroup, palette: Palette) -> Drawing:
    """m(c) of each model with its band and its power law; below, how far it is above the best."""
    several = len(group.models) > 1
    figure = new_figure(max(2.6, 0.8 * height_for(len(group.models))), 1 + several)
    laws = {law.model: law for law in group.power_laws}
    axes, ends, heights = figure.axes[0], list[End](), list[float]()
    where = np.geomspace(record.contexts[0], record.contexts[-1], 200)
    for curve in group.curves:
        shown = [displayed(each.value, record.unit) for each in curve.losses]
        colour = palette.colour(curve.model)
        marker = palette.marker(curve.model)
        law = laws.get(curve.model)
        dash = palette.dash(curve.model)
        style = "none" if law else dash
        axes.plot(
            record.contexts, shown, color=colour, marker=marker, ms=scaled(4), linestyle=style
        )
        heights += [*shown, *_band(axes, record, curve.losses, colour, len(group.models))]
        if law is not None:
            fitted = (law.alpha.value / where) ** law.beta.value + law.gamma.value
            bits = [displayed(each, record.unit) for each in fitted]
            axes.plot(where, bits, color=colour, linestyle=dash)
        ends.append(_end(record.contexts[-1], shown[-1], palette, curve.model))
    set_limits(axes, heights, record.unit)
    _set_contexts(axes, record.contexts, "" if several else f"context ({record.counted_in})")
    axes.set_ylabel(unit_name(record.unit, axes.get_yscale()))
    label_ends(axes, ends)
    if several:
        _draw_above_best(figure.axes[1], record, group, palette)
    figure.align_ylabels()
    title = f"Loss by context{f', group {group.name}' * bool(group.name)}"
    subtitle = "mean over tokens, each given exactly so many predecessors; bands: 95 % intervals"
    key = (key_handle("measured", "none", marker="o"), key_handle("power law")) if laws else ()
    return Drawing(figure, title, subtitle, key)


def _end(x: float, y: float, palette: Palette, model: str, said: str = "") -> End:
    """The end of a model's line, with what is said behind its name."""
    colour, ink, dash = palette.colour(model), palette.ink(model), palette.dash(model)
    return End(x, y, model + said, colour, ink, dash=dash)


def _set_contexts(axes: Axes, contexts: tuple[int, ...], label: str) -> None:
    """Ticks at the contexts, on a log scale where they are not evenly spaced."""
    if len(set(np.diff(contexts).tolist())) > 1:
        axes.set_xscale("log")
        label = label and f"{label.removesuffix(')')}, log scale)"
    set_contexts(axes, contexts, label)
    axes.xaxis.set_minor_formatter(NullFormatter())


def _band(
    axes: Axes, record: ContextRecord, values: tuple[Interval, ...], colour: str, count: int
) -> list[float]:
    """Shades the intervals of losses, if there are any; the heights that it takes."""
    if any(each.low is None for each in values):
        return []
    low = [displayed(each.low or 0.0, record.unit) for each in values]
    high = [displayed(each.high or 0.0, record.unit) for each in values]
    shade(axes, record.contexts, low, high, colour, count)
    return [*low, *high]


def _draw_above_best(
    axes: Axes, record: ContextRecord, group: ContextGroup, palette: Palette
) -> None:
    ends = []
    for curve in group.curves:
        values = [in_unit(each, record.unit) for each in curve.above_best]
        colour = palette.colour(curve.model)
        heights = [each.value for each in values]
        axes.plot(
            record.contexts,
            heights,
            color=colour,
            linestyle=palette.dash(curve.model),
            marker=palette.marker(curve.model),
            ms=scaled(4),
        )
        low = [each.value if each.low is None else each.low for each in values]
        high = [each.value if each.high is None else each.high for each in values]
        shade(axes, record.contexts, low, high, colour, len(group.models))
        ends.append(_end(record.contexts[-1], heights[-1], palette, curve.model))
    _set_contexts(axes, record.contexts, f"context ({record.counted_in})")
    axes.set_ylabel(f"above {_short(group.best)} ({unit_of_loss(record.unit)})")
    label_ends(axes, ends)


def _short(name: str) -> str:
    return name if len(name) <= 18 else "the best"


def draw_harm(record: ContextRecord, group: ContextGroup, palette: Palette) -> Drawing | None:
    """Shares of tokens that each step harms and helps; None where there is one context."""
    if not any(curve.harm for curve in group.curves):
        return None
    figure = new_figure(height_for(len(group.models)))
    (axes,) = figure.axes
    ends = []
    for curve in group.curves:
        colour = palette.colour(curve.model)
        steps = curve.harm[: len(record.contexts) - 1]
        longer = [step.longer for step in steps]
        marker = palette.marker(curve.model)
        for values, line, fill in (
            ([step.harmed for step in steps], palette.dash(curve.model), colour),
            ([step.helped for step in steps], DASHED, "white"),
        ):
            heights = [each.value for each in values]
            axes.plot(
                longer, heights, color=colour, linestyle=line, marker=marker, mfc=fill, ms=scaled(4)
            )
            low = [each.value if each.low is None else each.low for each in values]
            high = [each.value if each.high is None else each.high for each in values]
            shade(axes, longer, low, high, colour, len(group.models))
        ends.append(_end(longer[-1], steps[-1].harmed.value, palette, curve.model))
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g} %"))
    axes.set_ylabel("share of tokens")
    _set_contexts(axes, record.contexts[1:], f"context grown to ({record.counted_in})")
    label_ends(axes, ends)
    delta = group.curves[0].harm[0].delta
    key = (
        key_handle("harmed", marker="o"),
        key_handle("helped", DASHED, marker="o", mfc="white"),
    )
    title = f"Tokens that a longer context harms{f', group {group.name}' * bool(group.name)}"
    subtitle = f"loss changed by more than {delta:g} nats from one context to the next"
    return Drawing(figure, title, subtitle, key)


def draw_information(
    record: ContextRecord,  # noqa: ARG001  # figures of a group are all called alike
    group: ContextGroup,
    palette: Palette,
) -> Drawing | None:
    """I(L) on log-log scales, with and without correction; None where none is above 0."""
    found = group.mutual_information
    if found is None or not found.exponents:
        return None
    figure = new_figure(height_for(len(group.models)))
    (axes,) = figure.axes
    ends = []
    is_corrected = any(each.way == "corrected" for each in found.exponents)
    for each in found.exponents:
        main = each.way == "corrected" or not is_corrected
        colour = palette.colour(each.model)
        _draw_exponent(axes, each, colour, palette.marker(each.model), main)
        above = [pair for pair in zip(each.lengths, each.nats, strict=True) if pair[1].value > 0]
        if main and above:
            fitted = each.exponent
            said = f": {fitted.value:.2f}" if fitted else ": no power law"
            last, nats = above[-1]
            ends.append(_end(last, nats.value, palette, each.model, said))
    if not ends:
        return None
    axes.set_xscale("log", base=2)
    set_logarithmic(axes)
    set_contexts(axes, found.exponents[0].lengths, "length L (tokens, log scale)")
    axes.set_ylabel("I(L) in nats, log scale")
    axes.xaxis.set_minor_formatter(NullFormatter())
    label_ends(axes, ends)
    is_fitted = any(each.exponent for each in found.exponents)
    key = [key_handle("fitted power of L", linewidth=scaled(1))] if is_fitted else []
    if is_corrected:
        key = [
            key_handle("n-gram corrected", "none", marker="o"),
            key_handle("losses alone", "none", marker="o", mfc="white"),
            *key,
        ]
    title = f"Mutual information of neighbouring halves{f', group {group.name}' * bool(group.name)}"
    subtitle = "what L tokens tell of the L after them; beside each name the exponent (L²M)"
    return Drawing(figure, title, subtitle, tuple(key))


def _draw_exponent(axes: Axes, each: Exponent, colour: str, marker: str, main: bool) -> None:
    """Points with their intervals; the fitted line of the main ones."""
    heights = np.array([nats.value for nats in each.nats])
    keep = heights > 0
    low = np.array([nats.value if nats.low is None else nats.low for nats in each.nats])
    high = np.array([nats.value if nats.high is None else nats.high for nats in each.nats])
    where = np.array(each.lengths)[keep]
    axes.errorbar(
        where,
        heights[keep],
        yerr=np.maximum([heights - low, high - heights], 0.0)[:, keep],
        color=colour,
        marker=marker,
        ms=scaled(4.5),
        mfc=colour if main else "white",
        linestyle="none",
        elinewidth=scaled(0.9),
    )
    if main and each.exponent is not None and each.factor is not None:
        fitted = each.factor.value * where.astype(float) ** each.exponent.value
        axes.plot(where, fitted, color=colour, linewidth=scaled(1))
    elif main:
        axes.plot(where, heights[keep], color=colour, linewidth=scaled(0.8), linestyle=DASHED)
