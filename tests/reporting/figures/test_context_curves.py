"""Figures of `context`: what is drawn is what the record holds."""

import numpy as np
import pytest

from tests.reporting.context_records import measured
from txlbench.reporting.figures import context_curves
from txlbench.reporting.figures.style import Palette, style


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return measured(tmp_path_factory.mktemp("files"))


@pytest.fixture
def drawn(record):
    """Draws a figure of the only group."""

    def draw(function, **changes):
        (group,) = record.named_groups()
        group = group.model_copy(update=changes)
        with style():
            drawing = function(record, group, Palette(tuple(record.models)))
            if drawing is not None:
                drawing.figure.canvas.draw()
        return drawing

    return draw


def heights(axes):
    return [np.asarray(line.get_ydata(), dtype=float) for line in axes.lines]


def labels(axes):
    return {text.get_text() for text in axes.texts}


def test_points_are_losses_and_lines_the_power_law(record, drawn):
    drawing = drawn(context_curves.draw_curves)
    above, below = drawing.figure.axes
    (group,) = record.groups
    for curve, law in zip(group.curves, group.power_laws, strict=True):
        bits = [each.value / np.log(2) for each in curve.losses]
        assert any(len(line) == len(bits) and np.allclose(line, bits) for line in heights(above))
        ends = (law.alpha.value / np.array([4, 32])) ** law.beta.value + law.gamma.value
        fitted = [line for line in heights(above) if len(line) == 200]
        assert any(np.allclose(line[[0, -1]], ends / np.log(2)) for line in fitted)
    assert labels(above) == labels(below) == {"XL", "LSTM"}
    assert "bits per character" in above.get_ylabel()
    assert "LSTM" in below.get_ylabel()


def test_without_a_power_law_points_are_joined(drawn):
    drawing = drawn(context_curves.draw_curves, power_laws=())
    assert {line.get_linestyle() for line in drawing.figure.axes[0].lines} == {"-"}
    assert drawing.key == ()


def test_uneven_contexts_stand_on_a_log_scale(record, tmp_path):
    (group,) = record.named_groups()
    with style():
        axes = drawing_axes(record, group)
    assert axes.get_xscale() == "linear"
    uneven = record.model_copy(update={"contexts": (1, 2, 4, 8, 16, 32, 64, 128)})
    with style():
        axes = drawing_axes(uneven, group)
    assert axes.get_xscale() == "log"


def drawing_axes(record, group):
    drawing = context_curves.draw_curves(record, group, Palette(tuple(record.models)))
    return drawing.figure.axes[0]


def test_harm_has_two_lines_a_model(record, drawn):
    (axes,) = drawn(context_curves.draw_harm).figure.axes
    (group,) = record.groups
    expected = [
        [getattr(harm, name).value for harm in curve.harm[:-1]]
        for curve in group.curves
        for name in ("harmed", "helped")
    ]
    assert [line.tolist() for line in heights(axes)] == expected
    assert drawn(context_curves.draw_harm, curves=tuple(
        curve.model_copy(update={"harm": ()}) for curve in group.curves
    )) is None  # fmt: skip


def test_exponents_stand_beside_the_names(record, drawn):
    (axes,) = drawn(context_curves.draw_information).figure.axes
    (group,) = record.groups
    found = {
        e.model: e.exponent for e in group.mutual_information.exponents if e.way == "corrected"
    }
    assert labels(axes) == {f"{model}: {each.value:.2f}" for model, each in found.items()}
    assert drawn(context_curves.draw_information, mutual_information=None) is None


def test_what_is_no_power_law_says_so(record, drawn):
    (group,) = record.groups
    about = group.mutual_information
    refused = tuple(
        each.model_copy(update={"exponent": None, "factor": None}) for each in about.exponents
    )
    about = about.model_copy(update={"exponents": refused})
    (axes,) = drawn(context_curves.draw_information, mutual_information=about).figure.axes
    assert labels(axes) == {"XL: no power law", "LSTM: no power law"}
