"""Names at the ends of curves, moved apart so that none covers another, and ticks at contexts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from txlbench.reporting.figures.style import cut, scaled

FAR = 0.8
"""A line that ends left of this share of the axes is led to its label by dots."""
LINE_HEIGHT = 0.19
"""Inches that one label needs."""
BELOW_AXES = 0.55
"""Inches of an axes' place that its ticks and their label take."""
MOST_TICKS = 11


@dataclass(frozen=True)
class End:
    """Where a line ends (data coordinates), and what it is called.

    Attributes:
        off_scale: what is written behind the name of a line that ends beyond the axes.
    """

    x: float
    y: float
    label: str
    colour: str
    ink: tuple[float, ...]
    off_scale: str = ""


def label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Writes each end's label right of the axes, near its height; call after the limits are set."""
    rows = axes.get_subplotspec().get_gridspec().nrows  # type: ignore[union-attr]
    height = axes.get_figure(root=True).get_size_inches()[1] / rows - scaled(BELOW_AXES)  # type: ignore[union-attr]
    ordered = sorted(ends, key=lambda end: (end.y, end.label))
    points = [_fraction(axes, end.x, end.y) for end in ordered]
    places = [min(max(y, 0.0), 1.0) for _, y in points]
    heights = spread(places, scaled(LINE_HEIGHT) / height)
    size = scaled(8.8)
    for end, (x, y), label_height in zip(ordered, points, heights, strict=True):
        is_inside = 0 <= y <= 1
        axes.annotate(
            cut(end.label if is_inside else f"{end.label} {end.off_scale}", size),
            xy=(end.x, end.y),
            xytext=(1.035, label_height),
            textcoords="axes fraction",
            color=end.ink,
            fontsize=size,
            va="center",
            annotation_clip=False,
            arrowprops=_leader(end.colour, is_far=x < FAR) if is_inside else None,
        )


def _leader(colour: str, is_far: bool) -> dict[str, Any]:
    """A thin line from the end of a curve to its label."""
    return {
        "arrowstyle": "-",
        "linestyle": ":" if is_far else "-",
        "color": colour,
        "linewidth": 0.6,
        "alpha": 0.6,
        "shrinkA": 1,
        "shrinkB": 3,
        "relpos": (0, 0.5),
    }


def _fraction(axes: Axes, x: float, y: float) -> tuple[float, float]:
    """A point in data coordinates as shares of the axes' width and height."""
    across, up = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))
    return float(across), float(up)


def spread(values: Sequence[float], gap: float) -> list[float]:
    """Ascending `values` moved as little as possible (least squares) to be `gap` apart.

    With the gaps subtracted this is isotonic regression: neighbours out of order are pooled.
    The result is kept within 0 and 1 where it fits.
    """
    pools: list[tuple[float, int]] = []
    for index, value in enumerate(values):
        mean, size = value - index * gap, 1
        while pools and pools[-1][0] > mean:
            other, other_size = pools.pop()
            mean = (mean * size + other * other_size) / (size + other_size)
            size += other_size
        pools.append((mean, size))
    placed = [mean for mean, size in pools for _ in range(size)]
    top = max(0.0, 1 - (len(placed) - 1) * gap)
    return [min(max(mean, 0.0), top) + index * gap for index, mean in enumerate(placed)]


def set_contexts(axes: Axes, contexts: Sequence[int], label: str) -> None:
    """Ticks at contexts that were measured, thinned out evenly where there are many."""
    every = -(-len(contexts) // MOST_TICKS)
    shown = contexts[(len(contexts) - 1) % every :: every]
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(shown, [f"{context:,}" for context in shown])
    axes.set_xlabel(label)
