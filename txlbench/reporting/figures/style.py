"""The look of all figures: sizes, a palette safe for colour-blind readers, reproducible files."""

import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path

from txlbench.files import write_atomically

COLOURS = (
    *("#0072B2", "#D55E00", "#000000", "#44AA99"),
    *("#882255", "#E69F00", "#56B4E9", "#332288"),
)
"""Colours of Okabe and Ito and of Tol, ordered so that the first ones stay the farthest apart with
normal sight, protanopia and deuteranopia alike. More than these eight cannot be told apart: further
rows get them again, with other lines and markers."""
INK = 0.68
"""Text is this much of its line's brightness: a contrast of 4.5 to white, WCAG's level AA."""
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#666666"
PALE = 0.3
SHADE = 0.15
NORMAL_95 = 1.96
"""Standard errors on either side of a mean that make a band of 95 %."""
Dashes = str | tuple[int, tuple[float, ...]]
DASHED: Dashes = (0, (3, 2))
"""What is not measured on trained positions, or the second of two kinds; never a row."""
DASHES: tuple[Dashes, ...] = (
    *("-", (0, (9, 2, 2, 2)), (0, (1.2, 1.6)), (0, (9, 2, 2, 2, 2, 2)), (0, (14, 3))),
)
"""Lines of the first eight rows, of the next eight, and so on."""

FONT_SIZE = 9.5
STYLE: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "figure.dpi": 200,
    "savefig.dpi": 200,
    "svg.hashsalt": "txlbench",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,  # publishers refuse the default, Type 3
    "text.hinting": "none",  # so that text is as wide as it was measured
    "text.parse_math": False,  # a label is a label, dollar signs included
}

WIDTH = 7.2
PAD = 0.04167
"""Inches that the layout leaves around axes, as matplotlib has it."""
LABEL_SHARE = 0.4
"""The share of a figure's width that names beside its lines may take."""
LONGEST_LABEL = 100
KINDS = ("png", "svg", "pdf")


@dataclass(frozen=True)
class Look:
    """What a user may choose of figures.

    Attributes:
        formats: kinds of files, of `KINDS`.
        width: inches; letters and lines shrink with it, down to 70 %.
        title: whether title, subtitle and source are drawn; a paper's caption says them instead.
    """

    formats: tuple[str, ...] = ("png", "svg")
    width: float = WIDTH
    title: bool = True


class FigureSource(Protocol):
    """Where a figure comes from: in one short line for its foot, and in full."""

    @property
    def short(self) -> str: ...

    @property
    def full(self) -> str: ...


@dataclass(frozen=True)
class Palette:
    """A colour and marker for each row, the same in every figure of an experiment."""

    labels: tuple[str, ...]

    def colour(self, label: str) -> str:
        return COLOURS[self.labels.index(label) % len(COLOURS)]

    def ink(self, label: str) -> tuple[float, ...]:
        """The colour in which the label is written."""
        return tuple(INK * part for part in to_rgb(self.colour(label)))

    def marker(self, label: str) -> str:
        """Rows that share a colour differ in their marker."""
        turn, index = divmod(self.labels.index(label), len(COLOURS))
        return MARKERS[(index + turn) % len(MARKERS)]

    def dash(self, label: str) -> Dashes:
        """Rows that share a colour differ in their line, also where markers mean something else."""
        return DASHES[self.labels.index(label) // len(COLOURS) % len(DASHES)]


@dataclass(frozen=True)
class Drawing:
    """A figure before it gets its title, key and foot.

    Attributes:
        key: explains markers and lines, below the axes.
    """

    figure: Figure
    title: str
    subtitle: str
    key: tuple[Line2D, ...] = ()


@contextmanager
def style(width: float = WIDTH) -> Iterator[None]:
    """A context in which figures of `width` inches are drawn and saved.

    A label may have characters that the font lacks; the box drawn there says so well enough.
    """
    scale = min(1.0, max(0.7, width / WIDTH))
    sizes = {
        "figure.figsize": (width, 4.2 * scale),
        "font.size": FONT_SIZE * scale,
        "lines.linewidth": 1.7 * scale,
        "lines.markersize": 6 * scale,
    }
    settings: dict[Any, Any] = {**mpl.rcParamsDefault, **STYLE, **sizes, "backend": "agg"}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def scaled(size: float) -> float:
    """A length in points or inches, as small as the figure's letters are."""
    return size * float(mpl.rcParams["font.size"]) / FONT_SIZE


def new_figure(height: float, panels: int = 1) -> Figure:
    """A figure of the style's width with axes of `height` inches each, above each other."""
    width = mpl.rcParams["figure.figsize"][0]
    figure = Figure(figsize=(width, scaled(height) * panels), layout="constrained")
    figure.subplots(panels, squeeze=False)
    return figure


def new_page(height: float) -> Figure:
    """A figure whose only axes count inches from its upper left corner, to write and paint on."""
    width = mpl.rcParams["figure.figsize"][0]
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set(xlim=(0, width - 2 * PAD), ylim=(height, 0))
    return figure


def write_on(axes: Axes, x: float, y: float, text: str, **look: Any) -> None:
    """Text on a page, its left middle at (x, y); the layout leaves it alone, so inches stay so."""
    axes.text(x, y, text, va="center", **look).set_in_layout(False)


def height_for(count: int) -> float:
    """Inches that a figure with `count` names at the ends of its lines needs."""
    return max(3.3, 1.0 + 0.2 * count)


def text_width(
    text: str, size: float, weight: str = "normal", family: str = STYLE["font.family"]
) -> float:
    """Inches that one line of `text` takes at `size` points."""
    font = FontProperties(family=family, size=size, weight=weight)
    return float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]) / 72


def cut(text: str, size: float, share: float = LABEL_SHARE) -> str:
    """`text`, its middle left out where it is wider than `share` of a figure."""
    room = share * mpl.rcParams["figure.figsize"][0]
    text = " ".join(text.split())
    shown = text
    for kept in range(min(len(text), LONGEST_LABEL) - 1, 0, -1):
        if len(shown) <= LONGEST_LABEL and text_width(shown, size) <= room:
            break
        head = (kept + 1) // 2
        shown = f"{text[:head].rstrip()}…{text[len(text) - kept + head :].lstrip()}"
    return shown


def wrap(text: str, size: float, weight: str = "normal") -> list[str]:
    """The lines in which `text` fits a figure's width."""
    room = mpl.rcParams["figure.figsize"][0] - 0.2
    lines: list[str] = []
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(joined, size, weight) <= room:
            lines[-1] = joined
        else:
            lines.append(cut(word, size))
    return lines


def write_figure(
    drawing: Drawing | None, stem: Path, source: FigureSource, look: Look, note: str = ""
) -> list[Path]:
    """Completes a drawing and writes it in every format; call within `style`.

    Equal figures give equal bytes. Each file carries runs, commit and command as its description.

    Args:
        drawing: None where the records hold nothing for it: files of earlier ones are removed.
        note: what the figure leaves out.
    """
    if drawing is None:
        for kind in KINDS:
            stem.with_suffix(f".{kind}").unlink(missing_ok=True)
        return []
    frame(drawing, source, note, with_title=look.title)
    paths = []
    for kind in look.formats:
        path = stem.with_suffix(f".{kind}")
        about = _metadata(kind, drawing.title, source.full)
        write_atomically(
            path,
            lambda file, kind=kind, about=about: save(drawing.figure, file, kind, about),  # type: ignore[misc]
        )
        paths.append(path)
    return paths


def save(figure: Figure, file: IO[bytes], kind: str, about: Mapping[str, str | None]) -> None:
    """Writes what `Figure.savefig` would, which draws twice to know the layout."""
    canvas = {"png": FigureCanvasAgg, "svg": FigureCanvasSVG, "pdf": FigureCanvasPdf}[kind](figure)
    getattr(canvas, f"print_{kind}")(file, metadata=about)


def as_png(drawing: Drawing) -> bytes:
    """A drawing that was written already as a PNG image."""
    image = io.BytesIO()
    save(drawing.figure, image, "png", _metadata("png", drawing.title, ""))
    return image.getvalue()


def _metadata(kind: str, title: str, description: str) -> dict[str, str | None]:
    if kind == "pdf":
        return {"Title": title, "Subject": description, "CreationDate": None}
    return {"Title": title, "Description": description} | ({"Date": None} if kind == "svg" else {})


def frame(drawing: Drawing, source: FigureSource, note: str, with_title: bool) -> None:
    """Adds strips above and below the axes: title and subtitle, and key, source and `note`."""
    figure = drawing.figure
    width, height = figure.get_size_inches()
    big, middle, small = scaled(11), scaled(8.8), scaled(7)
    head = [(line, big, "bold", "black") for line in wrap(drawing.title, big, "bold")]
    head += [(line, middle, "normal", GREY) for line in wrap(drawing.subtitle, middle)]
    foot = [*(wrap(source.short, small) if with_title else ()), *wrap(note, small)]
    columns, rows = _key_shape(drawing.key, width)
    top = 0.1 + sum(1.45 * size / 72 for _, size, *_ in head) if with_title else 0.02
    bottom = 0.06 + 1.4 * small / 72 * len(foot) + scaled(0.2) * rows
    total = top + height + bottom
    figure.set_size_inches(width, total)
    figure.set_layout_engine(ConstrainedLayoutEngine(rect=(0, bottom / total, 1, height / total)))
    y = total - 0.08
    for line, size, weight, colour in head if with_title else ():
        _write(figure, line, y, size=size, weight=weight, color=colour)
        y -= 1.45 * size / 72
    for above, line in enumerate(reversed(foot), start=1):
        _write(figure, line, 0.05 + 1.4 * small / 72 * above, size=small, color=GREY)
    if drawing.key:
        _add_key(figure, drawing.key, columns, bottom)
    _lay_out(figure)


def _lay_out(figure: Figure) -> None:
    """Lays out once; places are rounded, as the solver's last bits differ from run to run."""
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position(np.round(axes.get_position(original=True).bounds, 6).tolist())


def _write(figure: Figure, text: str, y: float, **style: Any) -> None:
    """One line whose upper left corner is 0.1 inches from the left, `y` from the bottom."""
    place = figure.dpi_scale_trans
    figure.text(0.1, y, text, transform=place, va="top", in_layout=False, **style)


def _key_shape(key: Sequence[Line2D], width: float) -> tuple[int, int]:
    """Columns and rows in which a key's entries fit below a figure; cuts those too long for it."""
    if not key:
        return 0, 0
    size, beside = scaled(8.5), scaled(0.6)
    for handle in key:
        handle.set_label(cut(str(handle.get_label()), size, (width - 0.2 - beside) / width))
    widest = max(text_width(str(handle.get_label()), size) for handle in key)
    columns = min(len(key), max(1, int((width - 0.2) / (widest + beside))))
    return columns, -(-len(key) // columns)


def _add_key(figure: Figure, key: Sequence[Line2D], columns: int, top: float) -> None:
    figure.legend(
        handles=key,
        loc="upper left",
        bbox_to_anchor=(0.06, top),
        bbox_transform=figure.dpi_scale_trans,
        ncols=columns,
        fontsize=scaled(8.5),
        borderaxespad=0,
        borderpad=0,
        handletextpad=0.4,
        columnspacing=1.8,
        labelspacing=0.35,
    )


def key_handle(label: str, linestyle: Any = "-", **properties: Any) -> Line2D:
    """A grey entry of a key."""
    return Line2D([], [], color=GREY, label=label, linestyle=linestyle, **properties)
