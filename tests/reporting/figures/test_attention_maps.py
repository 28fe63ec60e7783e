"""Figures of attention of any size: nothing off the canvas, the strongest keys marked."""

import numpy as np
import pytest

from tests.reporting.attention_records import record
from tests.reporting.canvas import assert_legible
from txlbench.reporting import attention_report
from txlbench.reporting.figures import attention_maps
from txlbench.reporting.figures.style import frame, style

DRAWN = ("draw_profiles", "draw_terms", "draw_scales", "draw_rows", "draw_text")
WORDS = tuple(["unbelievably", "\n", " the", "\u00e9\u00e8", "$x$"] * 12)[:52]
SIZES = {
    "one head": {"layers": 1, "heads": 1, "keys": 1, "targets": 1},
    "three terms": {"layers": 6, "letters": "abe", "keys": 100},
    "deep": {"layers": 18, "heads": 10, "keys": 40, "targets": 12, "words": WORDS},
    "no terms": {"letters": ""},
}


class Source:
    short = full = "attention  \u00b7  commit abc"


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize(
    "size", ["one head", *(pytest.param(n, marks=pytest.mark.full) for n in [*SIZES][1:])]
)
def test_all_text_is_on_the_canvas(name, size):
    made = record(**SIZES[size])
    with style():
        drawing = getattr(attention_maps, name)(made)
        if drawing is None:
            assert len(made.letters) < 2
            return
        frame(drawing, Source(), "", with_title=True)
        assert_legible(drawing.figure)


def test_a_map_has_a_line_for_each_head_and_shows_its_profile():
    made = record(layers=3)
    with style():
        axes = attention_maps.draw_profiles(made).figure.axes[0]
    (image,) = axes.images
    expected = np.clip([head.profile for head in made.heads], attention_maps.LEAST, 1)
    np.testing.assert_allclose(image.get_array(), expected)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["1", "2", "3"]


def test_rows_stand_above_their_keys_and_a_fifth_is_marked():
    made = record(keys=10, targets=3)
    with style():
        axes = attention_maps.draw_rows(made).figure.axes[0]
    values, marked = (np.ma.filled(image.get_array(), 0) for image in axes.images)
    rows = made.shown.heads[0].rows
    for line, row in enumerate(rows):
        kept = np.clip(row[::-1], attention_maps.LEAST, 1)
        np.testing.assert_allclose(values[line, line : line + 10], kept)
        places = {line + 9 - apart for apart in attention_report.strongest(row)}
        assert set(np.flatnonzero(marked[line])) == places
        assert len(places) == 2


def test_long_contexts_are_cut_to_the_newest_lines():
    made = record(keys=4000, targets=1, words=tuple("ab " * 1333 + "ab"))
    with style():
        drawing = attention_maps.draw_text(made)
    texts = drawing.figure.axes[0].texts
    assert 1500 < sum(len(text.get_text()) for text in texts) < 3 * 12 * 100
    assert [text.get_weight() for text in texts].count("bold") == 3
