"""Labels that would cover each other are moved apart."""

import numpy as np
import pytest

from txlbench.reporting.figures.labels import set_limits, spaced, spread
from txlbench.reporting.figures.style import new_figure, style


def test_far_values_stay() -> None:
    assert spread([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])


def test_equal_values_spread_evenly_around_their_place() -> None:
    assert spread([0.5, 0.5, 0.5], 0.1) == pytest.approx([0.4, 0.5, 0.6])


def test_labels_keep_order_gap_and_frame() -> None:
    generator = np.random.default_rng(0)
    for _ in range(50):
        values = sorted(generator.uniform(0, 1, 8))
        placed = spread(values, 0.07)
        assert min(np.diff(placed)) > 0.07 - 1e-9
        assert placed[0] >= 0
        assert placed[-1] <= 1 + 1e-9


def test_a_logarithmic_axis_has_plain_numbers() -> None:
    """Powers of ten came as $\\mathdefault{10^{2}}$, since labels are not read as math."""
    with style():
        figure = new_figure(3)
        (axes,) = figure.axes
        set_limits(axes, [20.0, 95.0], "ppl")
        figure.canvas.draw()
        assert axes.get_yscale() == "log"
        labels = [label.get_text() for label in axes.get_yticklabels(which="both")]
    shown = {label for label in labels if label}
    assert {"20", "30", "50"} <= shown
    assert not any("$" in label for label in shown)


@pytest.mark.parametrize("is_logarithmic", [True, False])
def test_ticks_keep_apart_and_end_at_the_last(is_logarithmic: bool) -> None:
    lengths = [*range(60, 300, 4), 500, 1000, 4000]
    with style(3.3):
        found = spaced(lengths, is_logarithmic)
        assert spaced([16, 64], is_logarithmic) == [16, 64]
        assert spaced([16], is_logarithmic) == [16]
    assert set(found) <= set(lengths)
    assert found[-1] == 4000
    assert 2 <= len(found) <= 8
    assert found == sorted(found)
