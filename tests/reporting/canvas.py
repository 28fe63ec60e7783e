"""What every figure is held to: all text on the canvas, none over another, room for the axes."""

import itertools

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

NARROWEST = 0.25
"""The share of a figure's width that its axes have at least."""
LOWEST = 50
"""Pixels that axes are high at least."""
SLACK = 0.5
"""Pixels by which a box may be off."""
BLANK = 0.1
"""The share of a line's height, above and below, that hardly any letter reaches."""


def assert_legible(figure: Figure) -> None:
    """Draws a figure that has its frame, and fails with every text that cannot be read."""
    complaints = complaints_about(figure)
    assert not complaints, "\n".join(complaints)


def complaints_about(figure: Figure) -> list[str]:
    """What is clipped or covered: texts off the canvas or over each other, axes without room."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    renderer = canvas.get_renderer()
    width, height = figure.bbox.size
    found = [
        f"axes of {axes.bbox.width:.0f} x {axes.bbox.height:.0f} pixels"
        for axes in figure.axes
        if axes.get_label() != "<colorbar>"
        and (axes.bbox.width < NARROWEST * width or axes.bbox.height < LOWEST)
    ]
    boxes = _text_boxes(figure, renderer)
    canvas_box = Bbox.from_bounds(0, 0, width, height).padded(SLACK)
    found += [
        f"{text!r} at {_rounded(box)}, canvas {width:.0f} x {height:.0f}"
        for text, box in boxes
        if not (canvas_box.contains(*box.min) and canvas_box.contains(*box.max))
    ]
    for (text, box), (other, other_box) in itertools.combinations(boxes, 2):
        across = min(box.x1, other_box.x1) - max(box.x0, other_box.x0)
        up = min(box.y1, other_box.y1) - max(box.y0, other_box.y0)
        if across > 2 * SLACK and up > 2 * SLACK:
            found.append(f"{text!r} covers {other!r} by {across:.0f} x {up:.0f} pixels")
    return found


def _text_boxes(figure: Figure, renderer: RendererAgg) -> list[tuple[str, Bbox]]:
    """Each text that is shown, with its box in pixels."""
    hidden = _hidden_ticks(figure)
    shown = [
        text
        for text in figure.findobj(Text)
        if isinstance(text, Text)
        and text.get_text().strip()
        and text.get_visible()
        and id(text) not in hidden
    ]
    return [(text.get_text(), _box(text, renderer)) for text in shown]


def _box(text: Text, renderer: RendererAgg) -> Bbox:
    """Where the letters are: a line's own box has room for the highest and the lowest."""
    box = Text.get_window_extent(text, renderer)  # without an annotation's arrow
    blank = BLANK * text.get_fontsize() * renderer.dpi / 72
    if text.get_rotation() % 180:
        return Bbox.from_extents(box.x0 + blank, box.y0, box.x1 - blank, box.y1)
    return Bbox.from_extents(box.x0, box.y0 + blank, box.x1, box.y1 - blank)


def _hidden_ticks(figure: Figure) -> set[int]:
    """Labels of ticks that are not drawn: outside the limits, or of invisible axes."""
    hidden: set[int] = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            margin = 1e-9 * (high - low)
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                is_drawn = axes.axison and low - margin <= tick.get_loc() <= high + margin
                hidden |= set() if is_drawn else {id(tick.label1), id(tick.label2)}
            hidden |= set() if axes.axison else {id(axis.label), id(axis.offsetText)}
    return hidden


def _rounded(box: Bbox) -> list[int]:
    return np.round(box.extents).astype(int).tolist()
