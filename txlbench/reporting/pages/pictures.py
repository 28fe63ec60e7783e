"""Figures as parts of a page: SVG that stands in the HTML itself, without title and source."""

import base64
import io
import re
from collections.abc import Callable

from markupsafe import Markup, escape

from txlbench.reporting.figures.style import Drawing, FigureSource, as_png, frame, save, style
from txlbench.reporting.pages.page import Picture

PAGE_WIDTH = 3.6
"""Inches: letters can be read on a telephone, and two figures stand side by side on a desk."""
LARGEST_SVG = 400_000
"""Bytes; a figure of more is embedded as PNG, so that a page stays small."""


def picture(
    name: str, draw: Callable[[], Drawing | None], source: FigureSource, note: str = ""
) -> Picture | None:
    """Draws a figure for a page; None where the records hold nothing for it.

    Args:
        name: unlike that of any other figure of the page.
    """
    with style(PAGE_WIDTH):
        drawing = draw()
        if drawing is None:
            return None
        frame(drawing, source, "", with_title=False)
        file = io.BytesIO()
        for ground in (drawing.figure.patch, *(axes.patch for axes in drawing.figure.axes)):
            ground.set_alpha(0)
        save(drawing.figure, file, "svg", {"Date": None})
        label = f"{drawing.title}: {drawing.subtitle}"
        svg = _inline(file.getvalue().decode(), re.sub(r"\W", "-", name), label)
        if len(svg) > LARGEST_SVG:
            svg = _image(as_png(drawing), label)
    return Picture(drawing.title, drawing.subtitle, note, svg)


def _inline(text: str, name: str, label: str) -> Markup:
    """Matplotlib's file as an element: no declarations, its ids begin with `name`."""
    _, _, text = text.partition("<svg ")
    attributes, _, content = text.partition(">")
    box = re.search(r'viewBox="[^"]*"', attributes)
    assert box is not None
    content = re.sub(
        r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", content, flags=re.S
    )
    content = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", content)
    return Markup(f'<svg {box[0]} role="img" aria-label="{escape(label)}">{content}')


def _image(png: bytes, label: str) -> Markup:
    data = base64.b64encode(png).decode()
    return Markup(f'<img alt="{escape(label)}" src="data:image/png;base64,{data}">')
