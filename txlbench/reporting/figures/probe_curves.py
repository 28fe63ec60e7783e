"""Recall by length, what changes of the far context leave, and what a short cache costs."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from txlbench.records.context_schema import Interval
from txlbench.records.probe_schema import ProbeRecord
from txlbench.reporting.figures.labels import End, label_ends, set_contexts, shade
from txlbench.reporting.figures.style import (
    DASHED,
    GREY,
    Drawing,
    Palette,
    height_for,
    key_handle,
    new_figure,
    scaled,
)

APART = 0.7
"""Share of a row's height that the dots of all models take."""


def draw_recall(record: ProbeRecord, palette: Palette) -> Drawing | None:
    """Greedy accuracy after the text itself (solid) and after another (dashed)."""
    found = [(each.model, each.forgetting) for each in record.results if each.forgetting]
    if not found:
        return None
    figure = new_figure(height_for(len(found)))
    (axes,) = figure.axes
    ends = []
    for model, curve in found:
        lengths = [point.length for point in curve.points]
        copies = [point.copy_accuracy for point in curve.points]
        _line(axes, lengths, copies, palette, model, len(found))
        others = [point.other_accuracy.value for point in curve.points]
        _second(axes, lengths, others, palette, model)
        ends.append(_end(lengths, copies, palette, model, f": fine {curve.fine.value:.0f}"))
    axes.set_xscale("log", base=2)
    axes.set_ylim(-0.02, 1.04)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.3g} %"))
    axes.set_ylabel("greedy accuracy")
    set_contexts(axes, record.lengths, "length of the text (tokens, log scale)")
    axes.xaxis.set_minor_formatter(NullFormatter())
    label_ends(axes, ends)
    key = (
        key_handle("after the text itself", marker="o"),
        _second_key("after another"),
    )
    subtitle = "accuracy on the second half of a text that was just read; bands: 95 % intervals"
    return Drawing(figure, "Forgetting curve", subtitle, key)


def draw_far(record: ProbeRecord, palette: Palette) -> Drawing | None:
    """A(f, k): a panel for each k, a row for each change."""
    nearest = [
        k for k in record.contexts[:-1] if any(_dots(record, k, name) for name in record.changes)
    ]
    if not nearest:
        return None
    models = list(record.models)
    row = max(0.28, 0.06 * len(models))
    figure = new_figure(0.7 + row * len(record.changes), panels=len(nearest))
    for axes, near in zip(figure.axes, nearest, strict=True):
        for row, name in enumerate(record.changes):
            for model, found in _dots(record, near, name):
                place = row + APART * ((models.index(model) + 0.5) / len(models) - 0.5)
                colour = palette.colour(model)
                if found.low is not None and found.high is not None:
                    axes.plot([found.low, found.high], [place] * 2, color=colour, lw=scaled(1.2))
                marker = palette.marker(model)
                axes.plot([found.value], [place], marker, color=colour, ms=scaled(5), mec="white")
        axes.set_title(f"nearest {near} tokens kept", fontsize=scaled(9.5), loc="left")
        axes.set_yticks(range(len(record.changes)), record.changes)
        axes.set_ylim(len(record.changes) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        for limit in (0, 1):
            axes.axvline(limit, color=GREY, lw=scaled(0.8), zorder=0)
    figure.axes[-1].set_xlabel("A(f, k): 0 nothing lost, 1 as if cut off")
    key = tuple(
        key_handle(model, "none", marker=palette.marker(model), mfc=palette.colour(model))
        for model in models
    )
    subtitle = f"share lost of what lies beyond, of {record.contexts[-1]} tokens; an upper bound"
    return Drawing(figure, "Perturbed far context", subtitle, key)


def _dots(record: ProbeRecord, near: int, name: str) -> list[tuple[str, Interval]]:
    return [
        (result.model, change.ablated)
        for result in record.results
        for far in result.far
        if far.near == near
        for change in far.changes
        if change.change == name and change.ablated is not None
    ]


def draw_cache(record: ProbeRecord, palette: Palette) -> Drawing | None:
    """What a cache of so many keys costs: the newest (solid), and with sinks (dashed)."""
    found = [result for result in record.results if result.evictions]
    if not found:
        return None
    figure = new_figure(height_for(len(found)))
    (axes,) = figure.axes
    ends = []
    for result in found:
        keys, costs = [e.keys for e in result.evictions], [e.cost for e in result.evictions]
        _line(axes, keys, costs, palette, result.model, len(found))
        kept = {e.keys: e.cost.value - e.saved.value for e in result.evictions if e.saved}
        if kept:
            _second(axes, list(kept), list(kept.values()), palette, result.model)
        ends.append(_end(keys, costs, palette, result.model))
    axes.set_xscale("log", base=2)
    set_contexts(axes, record.contexts[:-1], "keys in the cache (log scale)")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("nats a token above the whole context")
    label_ends(axes, ends)
    key = (
        key_handle("newest keys", marker="o"),
        _second_key(f"{record.sinks} sinks kept"),
    )
    return Drawing(figure, "Cache eviction", "what a short cache costs; bands: 95 % intervals", key)


def _second_key(label: str) -> Line2D:
    return key_handle(label, DASHED, marker="o", mfc="white")


def _second(
    axes: Axes, where: Sequence[int], heights: Sequence[float], palette: Palette, model: str
) -> None:
    """The line that a model's first one is held against: dashed, with open markers."""
    look: dict[str, Any] = {"marker": palette.marker(model), "mfc": "white", "ms": scaled(4)}
    colour = palette.colour(model)
    axes.plot(where, heights, color=colour, linestyle=DASHED, lw=scaled(0.9), **look)


def _line(
    axes: Axes,
    where: Sequence[int],
    values: Sequence[Interval],
    palette: Palette,
    model: str,
    count: int,
) -> None:
    """One of `count` lines, with its interval."""
    colour = palette.colour(model)
    heights = [each.value for each in values]
    dash, marker = palette.dash(model), palette.marker(model)
    axes.plot(where, heights, color=colour, linestyle=dash, marker=marker, ms=scaled(4))
    low = [each.value if each.low is None else each.low for each in values]
    high = [each.value if each.high is None else each.high for each in values]
    shade(axes, where, low, high, colour, count)


def _end(
    where: Sequence[int], values: Sequence[Interval], palette: Palette, model: str, said: str = ""
) -> End:
    """The end of a line, with what is said behind the name of its model."""
    colour, ink, dash = palette.colour(model), palette.ink(model), palette.dash(model)
    return End(where[-1], values[-1].value, model + said, colour, ink, dash=dash)
