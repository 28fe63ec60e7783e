"""Where heads attend, as the paper's Figures 5 to 7 show it, and the scale of their scores."""

import itertools
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
from numpy.typing import NDArray

from txlbench.records.attention_schema import AttentionRecord, HeadRows, ShownTargets
from txlbench.reporting.attention_report import TERMS, strongest
from txlbench.reporting.figures.labels import End, label_ends
from txlbench.reporting.figures.style import (
    DASHED,
    GREY,
    Drawing,
    Palette,
    key_handle,
    new_figure,
    new_page,
    scaled,
    text_width,
    write_on,
)
from txlbench.reporting.figures.token_credit import MONOSPACE, flow, visible

SHARES = LinearSegmentedColormap.from_list(
    "shares", ["#FFFFFF", "#CFE3F2", "#7FB3D8", "#2F78B3", "#0B3C6E", "#031B33"]
)
"""White for next to nothing, over blue to nearly black; equally read in grey."""
LEAST = 1e-4
"""Attention from which a colour is told from white."""
STRONG = "#D55E00"
MOST_TICKS = 16
LABELLED = 0.78
"""Share of a figure's width that the tokens below a heat map may take."""
MOST_ROWS = 30
"""Targets whose text fits beside a heat map."""
MOST_LINES = 12
"""Lines of text of each head."""


def draw_profiles(record: AttentionRecord) -> Drawing:
    """Figure 5: the mean attention of every head by relative distance, in one heat map."""
    profiles = np.array([head.profile for head in record.heads])
    height = min(7.5, max(2.2, 0.6 + 0.05 * len(profiles) + 0.1 * len(record.layers)))
    figure = new_figure(height)
    (axes,) = figure.axes
    image = _map(axes, profiles)
    _layer_ticks(axes, record)
    axes.set_xlabel("distance back from the query's token (tokens)")
    axes.set_ylabel("layer")
    _bar(figure, [axes], image)
    count = len(record.heads)
    return Drawing(
        figure,
        f"Where the {count} heads of {record.title} attend",
        f"a line each; mean over {record.queries:,} tokens, {_keys(record)}",
    )


def draw_terms(record: AttentionRecord) -> Drawing | None:
    """Figure 7: the softmax of each term alone by distance, a panel a term; None with one term."""
    letters = record.letters
    if len(letters) < 2:
        return None
    width = mpl.rcParams["figure.figsize"][0]
    each = min(2.6, max(1.3, 0.5 + 0.03 * len(record.heads)))
    columns = 2
    rows = -(-len(letters) // columns)
    figure = Figure(figsize=(width, scaled(each) * rows), layout="constrained")
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.flat)
    for spare in panels[len(letters) :]:
        spare.set_axis_off()
    for axes, letter in zip(panels, letters, strict=False):
        image = _map(axes, np.array([t.profile for t in record.terms if t.term == letter]))
        axes.set_title(f"({letter}) {TERMS[letter]}", fontsize=scaled(9), loc="left")
        _layer_ticks(axes, record, MOST_TICKS // 2)
        place = axes.get_subplotspec()
        if place.is_first_col():
            axes.set_ylabel("layer")
        if place.rowspan.stop > rows - 1 - (len(letters) % columns and not place.is_first_col()):
            axes.set_xlabel("distance back (tokens)")
            axes.tick_params(labelbottom=True)
    _bar(figure, panels, image)
    return Drawing(
        figure,
        f"What each term of the scores alone would attend to: {record.title}",
        "mean over tokens of the softmax of that term, all heads; colours as of attention itself",
    )


def draw_scales(record: AttentionRecord) -> Drawing | None:
    """Scale of each term's scores layer by layer (solid), and at one distance (dashed)."""
    if not record.terms:
        return None
    figure = new_figure(3.3)
    (axes,) = figure.axes
    layers = sorted(record.layers)
    ends = []
    palette = Palette(tuple(f"({letter}) {TERMS[letter]}" for letter in record.letters))
    for letter, label in zip(record.letters, palette.labels, strict=True):
        colour, marker = palette.colour(label), palette.marker(label)
        for name, line in (("scale", "-"), ("spread", DASHED)):
            values = [root_mean_square(record, layer, letter, name) for layer in layers]
            axes.plot(layers, values, color=colour, ls=line, marker=marker, ms=scaled(4.5))
            if name == "scale":
                ends.append(End(layers[-1], values[-1], label, colour, palette.ink(label)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=MOST_TICKS))
    axes.set_xlim(layers[0] - 0.3, layers[-1] + 0.3)
    axes.set_ylim(bottom=0)
    axes.margins(y=0.06)
    axes.set_xlabel("layer")
    axes.set_ylabel("standard deviation of scores")
    label_ends(axes, ends)
    key = (
        key_handle("over the keys of a query"),
        key_handle("over queries, at one distance", "--"),
    )
    return Drawing(
        figure,
        f"Scale of each term of the scores: {record.title}",
        "as they enter the softmax; a term that distance alone decides has no spread at one "
        "distance",
        key,
    )


def draw_rows(record: AttentionRecord) -> Drawing | None:
    """Figure 6: attention of chosen heads to single keys, a line a target, the strongest marked."""
    shown = record.shown
    if shown is None or not shown.heads:
        return None
    width, columns = mpl.rcParams["figure.figsize"][0], len(shown.tokens)
    each = scaled(0.55 + min(0.15 * shown.count, 4.0))
    figure = Figure(figsize=(width, each * len(shown.heads) + scaled(0.5)), layout="constrained")
    panels = list(figure.subplots(len(shown.heads), sharex=True, squeeze=False)[:, 0])
    for axes, head in zip(panels, shown.heads, strict=True):
        values, marks = _placed(shown, head)
        image = _map(axes, values)
        marked = np.ma.masked_where(~marks, np.clip(values, LEAST, 1))
        axes.imshow(marked, cmap=_REDS, norm=LogNorm(LEAST, 1), aspect="auto",
                    interpolation="nearest")  # fmt: skip
        axes.set_title(f"layer {head.layer}, head {head.head}", fontsize=scaled(9), loc="left")
        labels = [visible(token) for token in shown.tokens[columns - shown.count :]]
        every = -(-shown.count // MOST_ROWS)
        axes.set_yticks(range(0, shown.count, every), labels[::every], fontsize=scaled(7),
                        family=MONOSPACE)  # fmt: skip
        axes.set_ylabel("predicted", fontsize=scaled(8.5))
        axes.tick_params(axis="x", length=0)
    _token_ticks(panels[-1], shown)
    _bar(figure, panels, image)
    key = key_handle("the fifth of a token's keys with the most attention", "none", marker="s",
                     mfc=STRONG, mec="none")  # fmt: skip
    return Drawing(
        figure,
        f"What chosen heads of {record.title} attend to",
        f"a line for each token from {shown.first + columns - shown.count:,} of the split on",
        (key,),
    )


def draw_text(record: AttentionRecord) -> Drawing | None:
    """The context of the first target as text, the fifth of it that is attended to most marked."""
    shown = record.shown
    if shown is None or not shown.is_text or not shown.heads:
        return None
    width, size = mpl.rcParams["figure.figsize"][0], scaled(9)
    letter = text_width("0" * 100, size, family=MONOSPACE) / 100
    room = int((width - 0.3) / letter)
    tokens = [visible(token, 99) for token in shown.tokens[: len(shown.tokens) - shown.count + 1]]
    blocks = [_lines(tokens, head, room) for head in shown.heads]
    heights = [scaled(0.4 + 0.2 * lines) for _, lines in blocks]
    figure = new_page(sum(heights))
    (axes,) = figure.axes
    top = 0.0
    for head, (places, _), height in zip(shown.heads, blocks, heights, strict=True):
        name = f"layer {head.layer}, head {head.head}"
        write_on(axes, 0, top + scaled(0.12), name, fontsize=scaled(9))
        for column, line, text, share in places:
            _write(axes, column * letter, top + scaled(0.34 + 0.2 * line), text, share, letter)
        top += height
    return Drawing(
        figure,
        f"The strongest fifth of what chosen heads of {record.title} attend to",
        "context of one token, which stands in bold at the end; the deeper, the more attention",
    )


def _write(
    axes: Axes, left: float, middle: float, text: str, share: float | None, letter: float
) -> None:
    """Text on a colour as deep as its share; without one it is the target, in bold."""
    if share:
        corner, height = (left, middle - scaled(0.09)), scaled(0.18)
        depth = 0.2 + 0.8 * share
        patch = Rectangle(corner, len(text) * letter, height, fc=STRONG, alpha=depth, lw=0)
        axes.add_patch(patch)
    weight = "bold" if share is None else "normal"
    write_on(axes, left, middle, text, fontsize=scaled(9), family=MONOSPACE, weight=weight)


_REDS = LinearSegmentedColormap.from_list("reds", ["#FBE3D2", "#F0A06A", "#D55E00", "#7F3800"])


def root_mean_square(record: AttentionRecord, layer: int, letter: str, name: str) -> float:
    """`scale` or `spread` of a term over the heads of a layer."""
    of_layer = [t for t in record.terms if t.layer == layer and t.term == letter]
    return float(np.sqrt(np.mean([getattr(each, name) ** 2 for each in of_layer])))


def _map(axes: Axes, shares: NDArray[np.float64]) -> object:
    image = axes.imshow(
        np.clip(shares, LEAST, 1),
        norm=LogNorm(LEAST, 1),
        cmap=SHARES,
        aspect="auto",
        interpolation="nearest",
    )
    axes.grid(visible=False)
    axes.tick_params(length=scaled(2.5))
    return image


def _bar(figure: Figure, panels: Sequence[Axes], image: object) -> None:
    height = figure.get_size_inches()[1]
    shrink = min(1.0, scaled(2.6) / height)
    bar = figure.colorbar(image, ax=list(panels), pad=0.015, aspect=20, shrink=shrink)  # type: ignore[arg-type]
    ticks = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    bar.set_ticks(ticks, labels=["≤ 0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
    bar.minorticks_off()
    bar.set_label("share of attention (log scale)", fontsize=scaled(8))
    bar.ax.tick_params(labelsize=scaled(7.5))
    bar.outline.set_visible(False)


def _layer_ticks(axes: Axes, record: AttentionRecord, most: int = MOST_TICKS) -> None:
    """The number of each layer beside the middle of its heads, and lines between layers."""
    sizes = {layer: len(heads) for layer, heads in record.layers.items()}
    edges = np.cumsum([0, *sizes.values()])
    every, gap = -(-len(sizes) // most), scaled(2.4 if len(sizes) <= most else 1.2)
    middles = (edges[:-1] + edges[1:] - 1) / 2
    axes.yaxis.set_major_locator(FixedLocator(list(middles[::every])))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_yticks(middles[::every], [str(layer) for layer in list(sizes)[::every]])
    axes.tick_params(axis="y", length=0)
    for edge in edges[1:-1]:
        axes.axhline(edge - 0.5, color="white", linewidth=gap)
        axes.axhline(edge - 0.5, color=GREY, linewidth=scaled(0.5))


def _placed(shown: ShownTargets, head: HeadRows) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Attention [targets, tokens but the last] by place in the text, and the strongest fifth."""
    columns = len(shown.tokens) - 1
    values = np.zeros((shown.count, columns))
    marks = np.zeros((shown.count, columns), dtype=bool)
    for row, shares in enumerate(head.rows):
        query = columns - shown.count + row
        for apart in range(min(len(shares), query + 1)):
            values[row, query - apart] = shares[apart]
        for apart in strongest(shares[: query + 1]):
            marks[row, query - apart] = True
    return values, marks


def _token_ticks(axes: Axes, shown: ShownTargets) -> None:
    labels = [visible(token) for token in shown.tokens[:-1]]
    is_short, size = all(len(token) == 1 for token in labels), scaled(7)
    each = text_width("0", size, family=MONOSPACE) if is_short else 1.2 * size / 72
    if each * len(labels) <= LABELLED * mpl.rcParams["figure.figsize"][0]:
        axes.set_xticks(range(len(labels)), labels, rotation=0 if is_short else 90,
                        fontsize=size, family=MONOSPACE)  # fmt: skip
        axes.set_xlabel("tokens of the context")
        return
    width = 1.6 * text_width(f"{shown.first:,}", scaled(9.5))
    most = int(LABELLED * mpl.rcParams["figure.figsize"][0] / width)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=max(1, min(8, most))))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{shown.first + at:,.0f}"))
    axes.set_xlabel("place in the split (tokens)")


def _lines(
    tokens: Sequence[str], head: HeadRows, room: int
) -> tuple[list[tuple[int, int, str, float | None]], int]:
    """Column, line, text and share of attention of what is written; as many lines as fit.

    The share is 0 beyond the strongest fifth, where tokens side by side are one text, and None of
    the target, the last token.
    """
    shares = head.rows[0]
    marked, most = set(strongest(shares)), max(shares)
    count = len(tokens) - 1
    widths = itertools.accumulate(map(len, reversed(tokens)))
    fitting = sum(width <= room * MOST_LINES for width in widths) - 1
    kept = max(1, min(count, len(shares), fitting))
    places, lines = flow(list(tokens[count - kept :]), room)
    found: list[tuple[int, int, str, float | None]] = []
    for apart, (column, line, token) in zip(range(kept - 1, -2, -1), places, strict=True):
        share = None if apart < 0 else shares[apart] / most if apart in marked else 0.0
        if share == 0 and found and found[-1][1] == line and found[-1][3] == 0:
            before = found.pop()
            column, token = before[0], before[2] + token
        found.append((column, line, token, share))
    return found, lines


def _keys(record: AttentionRecord) -> str:
    least, most = record.keys
    seen = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    return f"each of which sees {seen} keys"
