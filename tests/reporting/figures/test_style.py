"""The look of figures: names that fit, files for a paper, colours for every kind of sight."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from tests.reporting.figure_records import LONG
from tests.reporting.laboratory import Laboratory, quality
from txlbench.reporting import report
from txlbench.reporting.experiment_results import read_results
from txlbench.reporting.figures.style import (
    COLOURS,
    Look,
    Palette,
    cut,
    height_for,
    style,
    text_width,
    wrap,
)
from txlbench.reporting.provenance import Provenance
from txlbench.reporting.report import FIGURES, draw_all


def test_of_many_rows_the_best_and_the_worst_are_drawn(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert height_for(report.MOST_ROWS) < 15, "inches"
    monkeypatch.setattr(report, "MOST_ROWS", 4)
    grid = {"train.lr": [1e-3 + 1e-5 * i for i in range(6)]}
    train = {"tgt_len": 16, "batch_size": 4, "max_step": 2}
    directory = laboratory.experiment(rows=[], grid=grid, seeds=[1], train=train)
    for line, config, run in laboratory.runs(directory):
        laboratory.finish(run, config, line, loss=lambda config: quality(config) + config.train.lr)
    results = read_results(directory)
    draw_all(results, Provenance.of(results, "txlbench"), directory.figures, Look(("svg",)))
    text = directory.figures.joinpath("loss_by_row.svg").read_text()
    assert "Shown: the best and the worst, 4 of 6 rows." in text
    assert [label in text for label in results.labels] == [True, True, False, False, True, True]


def test_a_paper_gets_a_narrow_pdf_without_title(laboratory: Laboratory, tmp_path: Path) -> None:
    results = read_results(laboratory.finished(seeds=[1]))
    source = Provenance.of(results, "txlbench figures")
    look = Look(formats=("pdf", "svg"), width=3.3, title=False)
    paths = draw_all(results, source, tmp_path, look)
    names = [name for name in FIGURES if name != "memory_lengths"]  # of nested settings only
    assert [path.name for path in paths] == [f"{n}.{s}" for n in names for s in ("pdf", "svg")]
    pdf, svg = (tmp_path / f"loss_by_row.{kind}" for kind in ("pdf", "svg"))
    assert b"Type3" not in pdf.read_bytes()
    assert b"txlbench figures" in pdf.read_bytes()
    assert f'width="{3.3 * 72:g}pt"' in svg.read_text()
    drawn = svg.read_text().partition("</metadata>")[2]
    assert "lowest first" not in drawn
    assert "commit" not in drawn
    again = draw_all(results, source, tmp_path / "again", look)
    assert [a.read_bytes() for a in paths] == [b.read_bytes() for b in again]


def test_the_last_bits_of_the_layouts_solver_reach_no_file(
    laboratory: Laboratory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The solver orders its constraints by address: its result differs between two calls."""
    results = read_results(laboratory.finished(seeds=[1]))
    source = Provenance.of(results, "txlbench figures")
    exact = ConstrainedLayoutEngine.execute

    def disturbed(engine: ConstrainedLayoutEngine, figure: Figure) -> Any:
        found = exact(engine, figure)
        for axes in figure.axes:
            bounds = axes.get_position(original=True).bounds
            axes.set_position([np.nextafter(np.float64(part), 2) for part in bounds])
        return found

    look = Look(formats=("svg", "png"))
    once = [p.read_bytes() for p in draw_all(results, source, tmp_path / "once", look)]
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", disturbed)
    again = [p.read_bytes() for p in draw_all(results, source, tmp_path / "again", look)]
    assert again == once


def test_long_names_lose_their_middle() -> None:
    with style(3.3):
        shown = cut(f"first {LONG} last", 8)
        assert shown.startswith("first a nam")
        assert shown.endswith("last")
        assert "…" in shown
        assert text_width(shown, 8) <= 0.4 * 3.3
        assert cut("short", 8) == "short"
        assert all(text_width(line, 8) <= 3.3 for line in wrap(f"{LONG} {'x' * 400}", 8))


# Machado, Oliveira and Fernandes 2009, severity 1: protanopia and deuteranopia, linear RGB.
SIGHT = (
    np.eye(3),
    np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
)
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)


def lab(colour: str, sight: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of a colour as it is seen."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(sight @ linear, 0, 1) / [0.95047, 1, 1.08883]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_colours_differ_for_every_kind_of_sight() -> None:
    for one, other in itertools.combinations(COLOURS, 2):
        for sight in SIGHT:
            distance = np.linalg.norm(lab(one, sight) - lab(other, sight))
            assert distance > 18, (one, other, distance)


def test_no_colour_comes_twice_without_another_line_and_marker() -> None:
    palette = Palette(tuple(map(str, range(report.MOST_ROWS))))
    for mark in (palette.marker, palette.dash):
        looks = {(palette.colour(label), mark(label)) for label in palette.labels}
        assert len(looks) == report.MOST_ROWS


def test_every_name_can_be_read_on_white_and_turned_for_a_dark_page():
    """Contrast of WCAG's level AA; pages turn brightness round and keep the hue."""
    names = tuple(map(str, range(len(COLOURS))))
    inks = [np.array(Palette(names).ink(name)) for name in names]
    assert min(_contrast(ink, np.ones(3)) for ink in inks) >= 4.5
    turn = np.array([0.426, 1.43, 0.144])  # of hue-rotate(180deg), as CSS defines it
    turned = [np.clip(turn @ (1 - ink) - (1 - ink), 0, 1) for ink in inks]
    assert min(_contrast(ink, np.full(3, 17 / 255)) for ink in turned) >= 4.5


def _contrast(one, other):
    darker, lighter = sorted(map(_luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour):
    linear = np.where(colour <= 0.03928, colour / 12.92, ((colour + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
