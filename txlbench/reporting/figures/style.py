"""One look for all figures: sizes, a colour-blind-safe palette, reproducible files."""

import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from txlbench.files import write_atomically

# Okabe and Ito's colours, yellow darkened to be seen on white; then two of Tol's muted ones.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000"),
    *("#56B4E9", "#E69F00", "#8C7A00", "#882255", "#8A8A8A"),
)
INK = 0.75
"""Text is this much of its line's brightness, to be read on white."""
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "#666666"
PALE = 0.3

STYLE: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 22,
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "lines.linewidth": 1.7,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "savefig.dpi": 200,
    "svg.hashsalt": "txlbench",
    "svg.fonttype": "path",
    "text.parse_math": False,  # a label is a label, dollar signs included
}

WIDTH = 7.2
KINDS = ("png", "svg")


class Source(Protocol):
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
        index = self.labels.index(label)
        return MARKERS[(index + index // len(COLOURS)) % len(MARKERS)]


def width_for(names: Iterable[str]) -> float:
    """Inches that a figure with `names` written beside it needs."""
    return max(WIDTH, 4.6 + 0.075 * max(map(len, names)))


def height_for(names: Collection[str]) -> float:
    """Inches that a figure with `names` at the ends of its lines needs."""
    return max(4.2, 1.7 + 0.28 * len(names))


def new_figure(title: str, subtitle: str, width: float, height: float) -> tuple[Figure, Axes]:
    """An empty figure of `width` times `height` inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title)
    axes.annotate(
        subtitle,
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 7),
        textcoords="offset points",
        color=GREY,
        fontsize=8.8,
    )
    return figure, axes


def add_key(axes: Axes, handles: Sequence[Line2D]) -> None:
    """Explains markers below the axes, where they hide nothing."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0, 0),
        bbox_transform=axes.transAxes + ScaledTranslation(0, -0.42, figure.dpi_scale_trans),
        ncols=len(handles),
        borderaxespad=0,
        handletextpad=0.4,
        columnspacing=1.8,
    )


def add_foot(figure: Figure, source: Source, left_out: Iterable[str]) -> None:
    """Names the source, and the rows that have nothing to show, below the axes."""
    lines = [source.short]
    missing = ", ".join(left_out)
    if missing:
        lines.append(f"Not shown: {missing}")
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=7, color=GREY)


def save(figure: Figure, stem: Path, title: str, source: Source) -> list[Path]:
    """Writes stem.png and stem.svg; equal figures give equal bytes.

    Both carry the runs, the commit and the command as their description.
    """
    about = {"Title": title, "Description": source.full}
    paths = []
    for kind in KINDS:
        details = {**about, "Date": None} if kind == "svg" else about
        path = stem.with_suffix(f".{kind}")
        write_atomically(
            path,
            lambda file, kind=kind, details=details: figure.savefig(  # type: ignore[misc]
                file, format=kind, metadata=details
            ),
        )
        figure.set_layout_engine("none")  # laid out once, at the first drawing
        paths.append(path)
    return paths


def remove(stem: Path) -> None:
    """Removes what `save` wrote, if it did."""
    for kind in KINDS:
        stem.with_suffix(f".{kind}").unlink(missing_ok=True)


@contextmanager
def style() -> Iterator[None]:
    """A context in which figures are drawn and saved.

    A label may have characters that the font lacks; the box drawn there says so well enough.
    """
    settings: dict[Any, Any] = {**mpl.rcParamsDefault, **STYLE, "backend": "agg"}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
