"""Final losses of all rows beside each other, and loss at each position of a segment.

Rows stand in the order measured. Without recurrence the first tokens of a segment lack context.
"""

from collections.abc import Iterator
from itertools import zip_longest

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from txlbench.config.base import displayed, shown
from txlbench.records.schema import Outcome
from txlbench.reporting.experiment_results import Results
from txlbench.reporting.figures.labels import unit_name
from txlbench.reporting.figures.series import (
    LineFigure,
    by_label,
    name_with_state,
    over_seeds,
    seeds_of,
    unit_of,
)
from txlbench.reporting.figures.style import (
    NORMAL_95,
    PALE,
    Drawing,
    Palette,
    cut,
    key_handle,
    new_figure,
    scaled,
)
from txlbench.reporting.rows import Estimate, Loss, TableRow, best_loss, build_rows, init_loss

LOGARITHMIC_FROM = 32
"""Longer segments stand on a log scale, as what happens is at their start."""
BIN = 1.12
"""There positions are averaged in bins each this much longer than the last; the first are alone."""


def draw_loss_by_position(results: Results, palette: Palette) -> Drawing | None:
    """One line a row over the trained positions; None without such records."""
    unit = unit_of(results)
    rows = dict(results.comparable_in(unit))
    frame = positions_frame(results)
    frame = binned(frame[frame["label"].isin(list(rows))])
    frame["value"] = [displayed(loss, unit) for loss in frame["loss"]]
    if frame.empty:
        return None
    parts = by_label(frame)
    lines = LineFigure({label: rows[label] for label in parts}, palette, unit)
    for label, part in parts.items():
        lines.add(label, _with_band(part, unit))
    longest = float(frame["position"].max())
    is_logarithmic = longest > LOGARITHMIC_FROM
    _set_positions(lines.axes, longest, is_logarithmic)
    scale = ", log scale" * is_logarithmic
    lines.finish(list(frame["value"]), f"position in the segment (tokens{scale})")
    split = results.runs[0].config.evaluate.split
    half = any(run.untrained_positions for run in results.runs)
    sampling = "; shaded: 95 % for the sampling of tokens" * bool(frame["error"].any())
    shaded = seeds_of(frame) or sampling
    subtitle = f"{split}; falling: the first tokens lack context{shaded}"
    subtitle += "; half loss: only the positions that it trains" * half
    return Drawing(lines.figure, "Loss within the segment: context fragmentation", subtitle)


def positions_frame(results: Results) -> pd.DataFrame:
    """Loss at each position of the segment, from 1: label, seed, position, loss, error (nats).

    Positions that were not scored, or that training left out, have no line. The standard error is
    0 where it was not recorded.
    """
    return pd.DataFrame(
        [
            (run.label, run.config.seed, position, loss, error or 0.0)
            for run in results.runs
            if run.outcome
            for position, (loss, error) in enumerate(_by_position(run.outcome), start=1)
            if loss is not None and position > run.untrained_positions
        ],
        columns=["label", "seed", "position", "loss", "error"],
    )


def _by_position(outcome: Outcome) -> Iterator[tuple[float | None, float | None]]:
    """Loss at each position, with its standard error."""
    found = outcome.by_position
    return zip_longest(found.by_position, found.errors_by_position)


def _with_band(part: pd.DataFrame, unit: str) -> pd.DataFrame:
    """Mean and range over seeds; of a single seed an interval for the sampling of tokens."""
    found = over_seeds(part, "position")
    if part["seed"].nunique() == 1:
        ordered = part.set_index("position").sort_index()
        for name, side in (("min", -1), ("max", 1)):
            edges = ordered["loss"] + side * NORMAL_95 * ordered["error"]
            found[name] = [displayed(nats, unit) for nats in edges]
    return found


def binned(frame: pd.DataFrame) -> pd.DataFrame:
    """Positions averaged (in nats) in bins that grow, where the segment is long."""
    longest = frame["position"].max() if len(frame) else 0
    if longest <= LOGARITHMIC_FROM:
        return frame
    steps = int(np.log(longest) / np.log(BIN)) + 2
    edges = np.unique(np.floor(BIN ** np.arange(steps)).astype(int))
    bins = np.searchsorted(edges, frame["position"], side="right")
    groups = frame.assign(error=frame["error"] ** 2).groupby(["label", "seed", bins], sort=False)
    means = groups[["position", "loss", "error"]].mean()
    means["error"] = np.sqrt(means["error"] / groups.size())  # of a mean of independent means
    return means.reset_index(["label", "seed"])


def _set_positions(axes: Axes, longest: float, is_logarithmic: bool) -> None:
    if is_logarithmic:
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda position, _: f"{position:,.0f}"))
    else:
        axes.set_xlim(0.5, longest + 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=9))


OFFSET = 0.14
"""Init stands this much above its row's line, best as much below."""


def draw_loss_by_row(results: Results, palette: Palette) -> Drawing | None:
    """Init (open) and best (filled) of each row, lowest best at the top; None without results."""
    unit = unit_of(results)
    comparable = dict(results.comparable_in(unit))
    rows = [row for row in build_rows(results) if row.label in comparable]
    if not rows:
        return None
    rows.sort(key=lambda row: _mean(row, best_loss).mean)
    figure = new_figure(0.75 + 0.32 * len(rows))
    (axes,) = figure.axes
    for height, row in enumerate(rows):
        _draw_row(axes, row, height, palette)
    names = [cut(name_with_state(row.label, row.runs), scaled(9.5)) for row in rows]
    axes.set_yticks(range(len(rows)), names, color="black")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.margins(x=0.08)
    axes.set_xlabel(f"loss ({unit_name(unit)})")
    seeds = max(len(row.scored) for row in rows)
    interval = "bars: 95 % t-interval, dots: seeds" if seeds > 1 else "one seed: no intervals"
    subtitle = f"{rows[0].first.config.evaluate.split}, lowest first; {interval}"
    return Drawing(figure, "Loss by row", subtitle, _key())


def _mean(row: TableRow, loss: Loss) -> Estimate:
    found = row.mean(loss)
    assert found is not None  # rows without numbers are not drawn
    return found


def _draw_row(axes: Axes, row: TableRow, height: int, palette: Palette) -> None:
    colour = palette.colour(row.label)
    init, best = _mean(row, init_loss), _mean(row, best_loss)
    axes.plot(
        [init.mean, best.mean],
        [height - OFFSET, height + OFFSET],
        color=colour,
        alpha=PALE,
        linewidth=scaled(1.2),
    )
    for loss, found, offset in ((init_loss, init, -OFFSET), (best_loss, best, OFFSET)):
        seeds = list(row.values(loss).values())
        if len(seeds) > 1:
            axes.plot(seeds, [height + offset] * len(seeds), ".", color=colour, alpha=PALE)
        _draw_estimate(axes, found, height + offset, colour, filled=loss is best_loss)
    axes.annotate(
        shown(best.mean, row.unit),
        (1.01, height),
        xycoords=("axes fraction", "data"),
        va="center",
        color=palette.ink(row.label),
        fontsize=scaled(8.8),
        annotation_clip=False,
    )


def _draw_estimate(axes: Axes, found: Estimate, y: float, colour: str, filled: bool) -> None:
    axes.errorbar(
        [found.mean],
        [y],
        xerr=None if found.half_width is None else [found.half_width],
        marker="D" if filled else "o",
        markersize=scaled(6 if filled else 6.5),
        markerfacecolor=colour if filled else "white",
        color=colour,
        elinewidth=scaled(1.3),
        capsize=scaled(2.5),
        zorder=3,
    )


def _key() -> tuple[Line2D, ...]:
    return (
        key_handle("init", "none", marker="o", mfc="white"),
        key_handle("best (number)", "none", marker="D"),
    )
