"""Every figure at any number of rows: text on the canvas, none over another, the same twice."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.reporting import figure_records
from tests.reporting.canvas import assert_legible, complaints_about
from tests.reporting.laboratory import Laboratory
from txlbench.records.finding_schema import Finding
from txlbench.reporting.experiment_results import read_results
from txlbench.reporting.figures.style import (
    Drawing,
    FigureSource,
    Palette,
    as_png,
    frame,
    new_figure,
    style,
)
from txlbench.reporting.findings import present
from txlbench.reporting.provenance import Provenance
from txlbench.reporting.report import FIGURES

SINGLE, DOUBLE = 3.3, 6.8
RECORDS: dict[str, Callable[[int], Finding]] = {
    "recl": figure_records.recl,
    "context": figure_records.context,
    "probe": figure_records.probe,
    "speed": figure_records.speed,
    "truth": figure_records.truth,
    "bench": figure_records.bench,
}
QUICK = [
    *((verb, 1, DOUBLE) for verb in RECORDS if verb != "context"),
    ("recl", 18, SINGLE),
]
ALL = itertools.product(("ablate", *RECORDS), (1, 2, 6, 18), (SINGLE, DOUBLE))
REST = [pytest.param(*case, marks=pytest.mark.full) for case in ALL if case not in QUICK]


def drawings(verb: str, count: int, folder: Path) -> Iterator[tuple[str, Drawing, FigureSource]]:
    """Each figure of a verb with its name and what it names as its source; within `style`."""
    if verb == "ablate":
        results = read_results(figure_records.experiment(Laboratory(folder), count))
        source = Provenance.of(results, "txlbench ablate small.yaml")
        for name, draw in FIGURES.items():
            drawing = draw(results, Palette(results.labels))
            assert drawing is not None or name == "memory_lengths", name
            if drawing is not None:
                yield name, drawing, source
        return
    shown = present(RECORDS[verb](count), folder)
    for name, draw_it in shown.figures.items():
        if (drawing := draw_it()) is not None:
            yield name, drawing, shown


def test_what_cannot_be_read_is_found() -> None:
    with style(SINGLE):
        figure = new_figure(2)
        (axes,) = figure.axes
        axes.set(xticks=[], yticks=[])
        assert_legible(figure)
        for place, text in ((0.3, "under"), (0.32, "over"), (1.9, "beyond the edge")):
            axes.text(place, 0.5, text, transform=axes.transAxes).set_in_layout(False)
        clipped, covered = complaints_about(figure)
    assert clipped.startswith("'beyond the edge' at")
    assert covered.startswith("'under' covers 'over'")


@pytest.mark.full
@pytest.mark.parametrize("verb", ["ablate", *RECORDS])
def test_the_same_record_gives_the_same_pixels(tmp_path: Path, verb: str) -> None:
    def images() -> dict[str, bytes]:
        with style(DOUBLE):
            return {
                name: as_png(drawing)
                for name, drawing, source in drawings(verb, 9, tmp_path)
                if frame(drawing, source, "", with_title=True) is None
            }

    assert images() == images()


@pytest.mark.parametrize(("verb", "count", "width"), [*QUICK, *REST])
def test_a_figure_is_legible(tmp_path: Path, verb: str, count: int, width: float) -> None:
    with style(width):
        for name, drawing, source in drawings(verb, count, tmp_path):
            frame(drawing, source, "", with_title=True)
            try:
                assert_legible(drawing.figure)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None
