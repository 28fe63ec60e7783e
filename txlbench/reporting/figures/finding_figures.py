"""Figures of `speed`, `bench` and `truth`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.ticker import FuncFormatter, NullFormatter

from txlbench.config.base import displayed
from txlbench.records.finding_schema import (
    BenchRecord,
    SpeedRecord,
    SpeedResult,
    TruthRecord,
    TruthRow,
)
from txlbench.reporting.figures.labels import (
    End,
    label_ends,
    set_contexts,
    set_logarithmic,
    shade,
)
from txlbench.reporting.figures.style import (
    COLOURS,
    DASHED,
    GREY,
    Dashes,
    Drawing,
    Palette,
    cut,
    height_for,
    key_handle,
    new_figure,
    scaled,
)
from txlbench.reporting.speed import name_of, published_speedups, three_digits, ways_of

PAPER = "paper (Table 9)"
LINE_STYLES: tuple[Dashes, ...] = ("-", "--", ":", "-.")
Point = tuple[int, float, float, float]
"""Attention length, speedup, and its quartiles."""


def draw_speed(record: SpeedRecord, palette: Palette) -> Drawing:
    """Speedup over the sliding window by attention length, as the paper's Table 9.

    One line a way of reading in its model's colour, on a logarithmic axis; bars are quartiles.
    """
    lines_of, paper = ways_of(record), published_speedups(record)
    curves = {name: _points(lines) for name, lines in lines_of.items()}
    figure = new_figure(height_for(len(curves) + bool(paper)))
    (axes,) = figure.axes
    set_logarithmic(axes)
    ends, ways = [], dict.fromkeys(palette.labels, 0)
    for (name, curve), lines in zip(curves.items(), lines_of.values(), strict=True):
        model = next(iter(lines.values())).model
        colour, index = palette.colour(model), ways[model]
        ways[model] += 1
        dash = LINE_STYLES[index % len(LINE_STYLES)]
        _draw_curve(axes, curve, color=colour, linestyle=dash, marker=palette.marker(model))
        label = f"{name}: {three_digits(curve[-1][1])}x"
        ends.append(End(*curve[-1][:2], label, colour, palette.ink(model), dash=dash))
    if paper:
        lengths, published = list(paper), list(paper.values())
        axes.plot(lengths, published, color=GREY, linestyle=DASHED, marker="x")
        ends.append(End(lengths[-1], published[-1], PAPER, GREY, to_rgb(GREY), dash=DASHED))
    set_contexts(axes, record.attention_lengths, "attention length (keys)")
    axes.set_ylabel("times faster (log scale)")
    label_ends(axes, ends)
    subtitle = f"times faster per token than the sliding window of {record.baseline}"
    return Drawing(figure, "Speed of evaluation", subtitle)


def _draw_curve(axes: Axes, curve: list[Point], **style: Any) -> None:
    lengths, medians, low, high = (list(part) for part in zip(*curve, strict=True))
    below = [max(0.0, y - end) for y, end in zip(medians, low, strict=True)]
    above = [max(0.0, end - y) for y, end in zip(medians, high, strict=True)]
    axes.errorbar(lengths, medians, [below, above], markersize=scaled(4), capsize=2, **style)


def _points(lines: Mapping[int, SpeedResult]) -> list[Point]:
    """Attention length, speedup and its quartiles, in order of length."""
    found = [(length, lines[length].speedup) for length in sorted(lines)]
    return [
        (length, each.median, each.lower_quartile, each.upper_quartile) for length, each in found
    ]


def draw_bench(record: BenchRecord) -> Drawing:
    """One dot a workload, the median written beside it, with lowest and highest."""
    results = record.results
    rates = [result.tokens_per_second for result in results]
    figure = new_figure(0.75 + 0.3 * len(results))
    (axes,) = figure.axes
    works = list(dict.fromkeys(result.work for result in results))
    for place, (result, rate) in enumerate(zip(results, rates, strict=True)):
        colour = COLOURS[works.index(result.work)]
        axes.plot([rate.min, rate.max], [place, place], color=colour, linewidth=scaled(2.5))
        axes.plot([rate.median], [place], "o", color=colour, mec="white")
        axes.annotate(
            f"{rate.median:,.0f}",
            (1.01, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=scaled(8.8),
            annotation_clip=False,
        )
    names = [cut(name_of(result), scaled(9.5)) for result in results]
    axes.set_yticks(range(len(results)), names)
    axes.set_ylim(len(results) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(min(r.min for r in rates) / 1.5, max(r.max for r in rates) * 1.5)
    axes.set_xlabel("tokens a second (log scale)")
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    return Drawing(figure, "Speed", "tokens a second: median, lowest and highest")


PANELS = {False: "trained without memory resets", True: "trained with memory resets"}


def draw_truth(record: TruthRecord, palette: Palette) -> Drawing:
    """Loss by context, measured (solid, with markers) and known to be best (dashed)."""
    shown = [resets for resets in PANELS if any(_has(row, resets) for row in record.rows)]
    most = max(len({truth_name(r) for r in record.rows if _has(r, each)}) for each in shown)
    figure = new_figure(max(2.7, height_for(most) - 0.6), panels=len(shown))
    top = max(displayed(loss, "bpc") for row in record.rows for loss in row.losses)
    for axes, resets in zip(figure.axes, shown, strict=True):
        axes.set_title(PANELS[resets], fontsize=scaled(9.5), loc="left")
        rows: dict[str, list[TruthRow]] = {}
        for row in record.rows:
            if _has(row, resets):
                rows.setdefault(truth_name(row), []).append(row)
        ends = [_draw_row(axes, record.contexts, seeds, palette) for seeds in rows.values()]
        axes.set_ylim(0, 1.05 * top)
        set_contexts(axes, record.contexts, "context length (tokens)")
        axes.set_ylabel("loss (bits per character)")
        label_ends(axes, ends)
    key = (
        key_handle("measured", marker="o", markersize=scaled(4)),
        key_handle("known: the least possible", DASHED, marker="o", mfc="white", ms=scaled(4)),
    )
    has_seeds = len(record.rows) > len({row.label for row in record.rows})
    subtitle = "each token given exactly so many predecessors"
    subtitle += "; shaded: range over seeds" * has_seeds
    return Drawing(figure, "Measured and known loss by context", subtitle, key)


def _has(row: TruthRow, resets: bool) -> bool:
    return bool(row.memory_reset) == resets


def truth_name(row: TruthRow) -> str:
    return f"memory {row.mem_len}"


def _draw_row(
    axes: Axes, contexts: Sequence[int], seeds: Sequence[TruthRow], palette: Palette
) -> End:
    """The mean over a row's seeds, and the range that they span."""
    name = truth_name(seeds[0])
    colour, dash = palette.colour(name), palette.dash(name)
    measured, known = (
        np.array([[displayed(loss, "bpc") for loss in losses] for losses in of_seeds])
        for of_seeds in ([row.losses for row in seeds], [row.known for row in seeds])
    )
    look: dict[str, Any] = {"color": colour, "marker": palette.marker(name), "ms": scaled(4)}
    if len(seeds) > 1:
        shade(axes, contexts, measured.min(0), measured.max(0), colour)
    axes.plot(contexts, known.mean(0), **look, mfc="white", linestyle=DASHED, lw=scaled(1.1))
    axes.plot(contexts, measured.mean(0), **look, linestyle=dash, zorder=2.5)
    end = float(measured.mean(0)[-1])
    return End(contexts[-1], end, name, colour, palette.ink(name), dash=dash)
