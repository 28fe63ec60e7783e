"""The horizontal axis of contexts, and names at the ends of curves, which both figures share."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

MOST_TICKS = 11


def set_contexts(axes: Axes, contexts: Sequence[int], label: str) -> None:
    """Ticks at contexts that were measured, thinned out evenly where there are many."""
    every = -(-len(contexts) // MOST_TICKS)
    shown = contexts[(len(contexts) - 1) % every :: every]
    axes.xaxis.set_major_locator(FixedLocator(shown))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticks(shown, [f"{context:,}" for context in shown])
    axes.set_xlabel(label)
