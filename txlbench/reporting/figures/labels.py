"""Names at the ends of curves, moved apart so that none covers another; ticks, limits and units."""

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import ConnectionPatch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation
from numpy.typing import ArrayLike

from txlbench.reporting.figures.style import SHADE, Dashes, cut, scaled, text_width

FAR = 0.8
"""A line that ends left of this share of the axes is led to its label by dots."""
LINE_HEIGHT = 0.19
"""Inches that one label needs."""
BELOW_AXES = 0.55
"""Inches of an axes' place that its ticks and their label take."""
MOST_TICKS = 11
AXES_SHARE = 0.5
"""Of a figure's width, what axes have at least beside long names."""
BESIDE = 1.035
"""Where names begin, in widths of the axes."""
SAMPLE = 0.32
"""Inches of the piece of a line before its name."""

OUTLYING = 20
"""Values this many times farther above the median than the median is above the least run off the
top of a figure."""


@dataclass(frozen=True)
class End:
    """Where a line ends (data coordinates), and what it is called.

    Attributes:
        off_scale: what is written behind the name of a line that ends beyond the axes.
        dash: of the line; where some are not solid, a piece of each stands before its name.
    """

    x: float
    y: float
    label: str
    colour: str
    ink: tuple[float, ...]
    off_scale: str = ""
    dash: Dashes = "-"


def label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Writes each end's label right of the axes, near its height; call after the limits are set."""
    rows = axes.get_subplotspec().get_gridspec().nrows  # type: ignore[union-attr]
    height = axes.get_figure(root=True).get_size_inches()[1] / rows - scaled(BELOW_AXES)  # type: ignore[union-attr]
    ordered = sorted(ends, key=lambda end: (end.y, end.label))
    points = [_fraction(axes, end.x, end.y) for end in ordered]
    places = [min(max(y, 0.0), 1.0) for _, y in points]
    heights = spread(places, scaled(LINE_HEIGHT) / height)
    size = scaled(8.8)
    sample = scaled(SAMPLE) if any(end.dash != "-" for end in ends) else 0.0
    for end, (x, y), label_height in zip(ordered, points, heights, strict=True):
        is_inside = 0 <= y <= 1
        place = (BESIDE, label_height)
        if is_inside:
            axes.add_artist(_leader(axes, end, place, is_far=x < FAR))
        axes.annotate(
            cut(end.label if is_inside else f"{end.label} {end.off_scale}", size),
            xy=place,
            xycoords="axes fraction",
            xytext=(72 * sample + 1, 0),
            textcoords="offset points",
            color=end.ink,
            fontsize=size,
            va="center",
            annotation_clip=False,
        )
        if sample:
            _draw_sample(axes, end, place, sample)


def _draw_sample(axes: Axes, end: End, place: tuple[float, float], length: float) -> None:
    """A piece of the line, `length` inches, that begins at `place` in shares of the axes."""
    root = axes.get_figure(root=True)
    assert root is not None
    inches = root.dpi_scale_trans + ScaledTranslation(*place, axes.transAxes)  # type: ignore[arg-type]
    piece = Line2D([0, 0.85 * length], [0, 0], color=end.colour, linewidth=scaled(1.4))
    piece.set(transform=inches, clip_on=False, linestyle=end.dash)
    axes.add_artist(piece)


def _leader(axes: Axes, end: End, place: tuple[float, float], is_far: bool) -> ConnectionPatch:
    """A thin line from the end of a curve to the place of its label."""
    leader = ConnectionPatch(
        place,
        (end.x, end.y),
        axes.transAxes,
        axes.transData,
        shrinkB=3,
        linestyle=":" if is_far else "-",
        color=end.colour,
        linewidth=0.6,
        alpha=0.6,
    )
    leader.set(clip_on=False, in_layout=False)
    return leader


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


def spaced(values: Sequence[int], is_logarithmic: bool = False) -> list[int]:
    """The last of ascending `values`, and those below it whose labels have room on an axis."""
    places = np.log(values) if is_logarithmic else np.asarray(values, dtype=float)
    inches = AXES_SHARE * mpl.rcParams["figure.figsize"][0] / max(places[-1] - places[0], 1e-9)
    size = float(mpl.rcParams["font.size"])
    halves = [text_width(f"{value:,}", size) / 2 + scaled(0.04) for value in values]
    kept = [len(values) - 1]
    for index in range(len(values) - 2, -1, -1):
        room = inches * (places[kept[-1]] - places[index])
        if room >= halves[index] + halves[kept[-1]]:
            kept.append(index)
    return [values[index] for index in reversed(kept)]


def set_contexts(axes: Axes, contexts: Sequence[int], label: str) -> None:
    """Ticks at contexts that were measured, thinned out where there are many."""
    every = -(-len(contexts) // MOST_TICKS)
    shown = list(contexts[(len(contexts) - 1) % every :: every])
    if axes.get_xscale() == "log":
        shown = spaced(contexts, is_logarithmic=True)
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(shown, [f"{context:,}" for context in shown])
    axes.set_xlabel(label)


def shade(
    axes: Axes,
    where: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    colour: str,
    count: int = 1,
) -> None:
    """An interval around a line, one of `count`: many bands over one another hide the lines."""
    alpha = SHADE * min(1.0, 3 / count)
    axes.fill_between(where, low, high, color=colour, alpha=alpha, lw=0)


def set_logarithmic(axes: Axes) -> None:
    """A logarithmic vertical axis with plain numbers: powers of ten would need math text."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def set_limits(axes: Axes, values: Sequence[float], unit: str) -> None:
    """Fixes the vertical axis around `values`; perplexities that span much on a log scale.

    What lies far above the others, as after a divergence, does not count.
    """
    array = np.asarray(values, dtype=float)
    if unit == "ppl":
        array = np.log(array)
    low, median = array.min(), np.median(array)
    high = min(array.max(), median + OUTLYING * (median - low)) if median > low else array.max()
    if unit == "ppl":
        low, high = np.exp(low), np.exp(high)
    if unit == "ppl" and high > 4 * low:
        set_logarithmic(axes)
        axes.set_ylim(low / 1.1, high * 1.1)
    else:
        margin = max(0.06 * (high - low), 0.005 * high) or 0.05
        axes.set_ylim(low - margin, high + margin)


def unit_name(unit: str, scale: str = "linear") -> str:
    """The unit in words, with the scale of its axis unless it is linear."""
    name = {"bpc": "bits per character", "bpb": "bits per byte", "ppl": "perplexity"}[unit]
    return f"{name}, log scale" if scale == "log" else name
