"""Which tokens gain from context: classes of tokens, and single tokens of a span."""

import itertools

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import AsinhNorm, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from txlbench.records.context_schema import ContextGroup, ContextRecord, TokenClass, TokenView
from txlbench.reporting.context import in_unit, unit_of_loss
from txlbench.reporting.figures.style import (
    GREY,
    Drawing,
    Palette,
    cut,
    key_handle,
    new_page,
    scaled,
    text_width,
    write_on,
)

CLASS_HEIGHT = 0.16
"""Inches that one model takes within a class."""
ROOMY = 4
"""Of more models each takes less."""
MOST_VIEWED = 6
"""Models for which single tokens are shown: more would fill pages."""
COLOURS_OF_CREDIT = LinearSegmentedColormap.from_list(
    "credit", ["#7F3800", "#D55E00", "#F6F6F6", "#0072B2", "#003A5C"]
)
"""Orange where context harms, blue where it helps."""
LINEAR = 0.5
"""Nats of credit up to which colours change evenly; beyond, by the logarithm."""
MAP_SHARE = 0.68
"""Of a figure's width, what a heat map takes."""
LONGEST_PIECE = 10
"""Letters of a token beside the heat map."""
MONOSPACE = "DejaVu Sans Mono"
DARK = 1.3
"""Sum of red, green and blue below which letters on a colour are white."""
LONGEST_SHOWN = 40
"""Letters of a token within coloured text."""
VISIBLE = {"\n": "\u23ce", "\t": "\u21e5", " ": "\u2423"}


def draw_classes(record: ContextRecord, group: ContextGroup, palette: Palette) -> Drawing | None:
    """Gain from the first context to the last by class, a panel a kind; None without classes."""
    kinds = [
        list(found) for _, found in itertools.groupby(group.classes, key=lambda each: each.kind)
    ]
    if not kinds:
        return None

    width = mpl.rcParams["figure.figsize"][0]
    lines = CLASS_HEIGHT * min(1.0, max(0.35, ROOMY / len(group.models)))
    step = lines * len(group.models) + 0.12
    heights = [scaled(0.45 + step * len(kind)) for kind in kinds]
    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    axes = figure.subplots(len(kinds), sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for panel, kind in zip(axes, kinds, strict=True):
        _draw_kind(panel, record, group, kind, palette)
    first, last = record.contexts[0], record.contexts[-1]
    unit = unit_of_loss(record.unit)
    axes[-1].set_xlabel(f"gain from {first} to {last} {record.counted_in}\nof context ({unit})")
    key = tuple(
        key_handle(
            model, "none", marker=palette.marker(model), mfc=palette.colour(model), mec="none"
        )
        for model in group.models
    )
    title = f"Which tokens use context{f', group {group.name}' * bool(group.name)}"
    subtitle = (
        "gain for each token of a class, with 95 % intervals; in brackets its share of tokens"
    )
    return Drawing(figure, title, subtitle, key)


def _draw_kind(
    axes: Axes,
    record: ContextRecord,
    group: ContextGroup,
    kind: list[TokenClass],
    palette: Palette,
) -> None:
    spread = 0.7 / len(group.models)
    for row, each in enumerate(kind):
        for place, curve in enumerate(each.curves):
            gain = in_unit(curve.gain, record.unit)
            height = row + spread * (place - (len(each.curves) - 1) / 2)
            colour = palette.colour(curve.model)
            if gain.low is not None and gain.high is not None:
                axes.plot([gain.low, gain.high], [height, height], color=colour, lw=scaled(1.2))
            axes.plot(
                [gain.value],
                [height],
                color=colour,
                marker=palette.marker(curve.model),
                ms=scaled(4.5),
            )
    axes.axvline(0, color=GREY, linewidth=scaled(0.8))
    names = [f"{each.name} ({each.share:.0%})" for each in kind]
    axes.set_yticks(range(len(kind)), names, fontsize=scaled(8))
    axes.set_ylim(len(kind) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.spines["left"].set_visible(False)
    axes.set_title(kind[0].kind, fontsize=scaled(9), loc="left", color=GREY)


def draw_view(
    record: ContextRecord,  # noqa: ARG001  # figures of a group are all called alike
    group: ContextGroup,
    palette: Palette,  # noqa: ARG001
) -> Drawing | None:
    """A heat map for each model: credit of each stretch (down) for each token (across)."""
    view = group.view
    if view is None:
        return None

    width = mpl.rcParams["figure.figsize"][0]
    models = group.models[:MOST_VIEWED]
    count, stretches = len(models), len(view.contexts) - 1
    height = scaled(0.62 + 0.125 * stretches)
    figure = Figure(figsize=(width, height * count + scaled(0.4)), layout="constrained")
    axes = figure.subplots(count, sharex=True, squeeze=False)[:, 0]
    strongest = _strongest(view)
    norm = AsinhNorm(LINEAR, -strongest, strongest)
    for panel, model in zip(axes, models, strict=True):
        credit = np.array(view.credit[model]).T
        image = panel.imshow(
            credit, norm=norm, cmap=COLOURS_OF_CREDIT, aspect="auto", interpolation="nearest"
        )
        panel.set_title(cut(model, scaled(9), 0.65), fontsize=scaled(9), loc="left")
        every = -(-stretches // 6)
        rows = list(range(0, stretches, every))
        names = [_stretch(view.contexts[row] + 1, view.contexts[row + 1]) for row in rows]
        panel.set_yticks(rows, names, fontsize=scaled(7))
        panel.grid(visible=False)
        panel.tick_params(length=0)
        for side in ("left", "bottom"):
            panel.spines[side].set_visible(False)
    tokens = [visible(token) for token in view.tokens]
    is_short = all(len(token) == 1 for token in tokens)
    size = min(scaled(7), MAP_SHARE * 72 * width / len(tokens) / 1.2)  # as far apart as they stand
    axes[-1].set_xticks(range(len(tokens)), tokens, rotation=0 if is_short else 90, fontsize=size)
    figure.supylabel("tokens back", fontsize=scaled(9))
    bar = figure.colorbar(image, ax=list(axes), shrink=min(1.0, 1.6 / count), pad=0.01)
    bar.set_label("nats of credit", fontsize=scaled(8))
    ticks = _ticks(strongest)
    bar.set_ticks(ticks, labels=[f"{each:+g}" if each else "0" for each in ticks])
    bar.minorticks_off()
    bar.ax.tick_params(labelsize=scaled(7))
    bar.outline.set_visible(False)
    first, last = view.positions[0], view.positions[-1]
    title = f"Which context helped which token{f', group {group.name}' * bool(group.name)}"
    subtitle = (
        f"tokens {first:,} to {last:,}, left to right; blue: that stretch of context lowers the "
        "token's loss, orange: it raises it"
    ) + _of_models(group)
    return Drawing(figure, title, subtitle)


def _of_models(group: ContextGroup) -> str:
    """What a subtitle says where only some models are shown."""
    count = len(group.models)
    return f"; the first {MOST_VIEWED} of {count} models" if count > MOST_VIEWED else ""


def _stretch(first: int, last: int) -> str:
    return f"{last}" if first == last else f"{first}\u2013{last}"


def _ticks(strongest: float) -> list[float]:
    """Round credits on either side of 0, as far as the colours go."""
    sizes = [size for size in (0.3, 1.0, 3.0, 10.0) if size <= strongest]
    return [*(-size for size in reversed(sizes)), 0.0, *sizes]


def draw_text(
    record: ContextRecord,  # noqa: ARG001  # figures of a group are all called alike
    group: ContextGroup,
    palette: Palette,  # noqa: ARG001
) -> Drawing | None:
    """The span as text for each model, coloured by the credit of all stretches together."""
    view = group.view
    if view is None or not view.is_text:
        return None

    width, size = mpl.rcParams["figure.figsize"][0], scaled(9.5)
    letter = text_width("0" * 100, size, family=MONOSPACE) / 100
    places, lines = flow([visible(token, 99) for token in view.tokens], int((width - 0.3) / letter))
    models = group.models[:MOST_VIEWED]
    height = scaled(0.38 + 0.22 * lines)
    figure = new_page(len(models) * height)
    (axes,) = figure.axes
    totals = np.array([np.sum(view.credit[model], axis=1) for model in models])
    norm = AsinhNorm(LINEAR, -_largest(totals), _largest(totals))
    for index, (model, total) in enumerate(zip(models, totals, strict=True)):
        name = cut(model, scaled(9), 0.9)
        write_on(axes, 0, index * height + scaled(0.12), name, fontsize=scaled(9))
        for (column, line, shown), value in zip(places, total.tolist(), strict=True):
            colour = COLOURS_OF_CREDIT(norm(value))
            left, middle = column * letter, index * height + scaled(0.34 + 0.22 * line)
            corner = (left, middle - scaled(0.1))
            axes.add_patch(
                Rectangle(corner, len(shown) * letter, scaled(0.2), facecolor=colour, linewidth=0)
            )
            ink = "white" if sum(colour[:3]) < DARK else "black"
            write_on(axes, left, middle, shown, color=ink, fontsize=size, family=MONOSPACE)
    first, last = view.contexts[0], view.contexts[-1]
    title = f"Which tokens context helped{f', group {group.name}' * bool(group.name)}"
    subtitle = (
        f"tokens {view.positions[0]:,} to {view.positions[-1]:,}; blue: {last} tokens of context "
        f"instead of {first} lower the loss, orange: they raise it"
    ) + _of_models(group)
    return Drawing(figure, title, subtitle)


def flow(tokens: list[str], width: int) -> tuple[list[tuple[int, int, str]], int]:
    """Column and line of each token where lines hold `width` letters, and the number of lines."""
    places, column, line = [], 0, 0
    for token in tokens:
        if column and column + len(token) > width:
            column, line = 0, line + 1
        places.append((column, line, token))
        column += len(token)
    return places, line + 1


def _largest(values: np.ndarray) -> float:
    return max(0.05, float(np.abs(values).max()))


def _strongest(view: TokenView) -> float:
    """Credit at which colours are full: all but the strongest hundredth is below."""
    credit = np.abs([line for lines in view.credit.values() for line in lines])
    return max(0.05, float(np.quantile(credit, 0.99)))


def visible(token: str, longest: int = LONGEST_PIECE) -> str:
    """A token as a label: white space made visible, cut where it is long."""
    shown = "".join(
        VISIBLE.get(letter, letter if letter.isprintable() else "\u00b7") for letter in token
    )
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}\u2026"
