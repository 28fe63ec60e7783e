"""Classes of tokens and the view of single tokens, as they are drawn."""

import numpy as np
import pytest

from tests.reporting.context_records import measured
from txlbench.reporting.figures import token_credit
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


def test_a_panel_a_kind_with_a_line_a_class(record, drawn):
    (group,) = record.groups
    panels = drawn(token_credit.draw_classes).figure.axes
    kinds = list(dict.fromkeys(each.kind for each in group.classes))
    assert [axes.get_title(loc="left") for axes in panels] == kinds
    names = [label.get_text() for axes in panels for label in axes.get_yticklabels()]
    assert names == [f"{each.name} ({each.share:.0%})" for each in group.classes]
    points = [float(line.get_xdata()[0]) for axes in panels for line in axes.lines]
    for each in group.classes:
        for curve in each.curves:
            assert np.isclose(points, curve.gain.value / np.log(2)).any()
    assert drawn(token_credit.draw_classes, classes=()) is None


def test_the_heat_map_is_credit_by_stretch_and_token(record, drawn):
    (group,) = record.groups
    figure = drawn(token_credit.draw_view).figure
    for axes, model in zip(figure.axes, group.models, strict=False):
        (image,) = axes.images
        assert np.allclose(image.get_array().T, group.view.credit[model])
    tokens = [label.get_text() for label in figure.axes[1].get_xticklabels()]
    assert tokens == [token.replace(" ", "\u2423") for token in group.view.tokens]
    assert drawn(token_credit.draw_view, view=None) is None


def test_text_is_written_token_by_token(record, drawn):
    (group,) = record.groups
    (axes,) = drawn(token_credit.draw_text).figure.axes
    written = [text.get_text() for text in axes.texts]
    assert written == [*("XL", *group.view.tokens), *("LSTM", *group.view.tokens)]
    assert len(axes.patches) == 2 * len(group.view.tokens)
    unknown = group.view.model_copy(update={"is_text": False})
    assert drawn(token_credit.draw_text, view=unknown) is None


def test_tokens_that_help_are_blue_and_that_harm_orange(record, drawn):
    (group,) = record.groups
    view = group.view
    credit = {model: tuple((1.0,) if k % 2 else (-1.0,) for k in range(len(view.tokens)))
              for model in group.models}  # fmt: skip
    view = view.model_copy(update={"credit": credit, "contexts": (1, 2)})
    (axes,) = drawn(token_credit.draw_text, view=view).figure.axes
    for k, patch in enumerate(axes.patches[: len(view.tokens)]):
        red, _, blue, _ = patch.get_facecolor()
        assert (blue > red) == bool(k % 2)


def test_long_texts_are_broken_into_lines():
    places, lines = token_credit.flow(["abc", "de", "f", "ghij"], 5)
    assert places == [(0, 0, "abc"), (3, 0, "de"), (0, 1, "f"), (1, 1, "ghij")]
    assert lines == 2


def test_white_space_is_seen_and_long_tokens_are_cut():
    assert token_credit.visible(" a\n\x00") == "\u2423a\u23ce\u00b7"
    assert token_credit.visible("abcdefghijklmn") == "abcdefghi\u2026"
