"""Figures 3 and 4: what they show of a record."""

import numpy as np
import pytest

from tests.reporting.recl_records import write_record
from txlbench.records.finding_schema import ReclRecord, read_finding
from txlbench.reporting.figures.labels import MOST_TICKS, set_contexts
from txlbench.reporting.figures.recl_curves import _round_numbers, draw_gains, draw_losses
from txlbench.reporting.figures.style import Palette, style


def drawn(draw, folder, **changes):
    record = read_finding(write_record(folder, **changes) / "recl.json", ReclRecord)
    (group, *_) = record.named_groups()
    with style():
        drawing = draw(record, group, Palette(tuple(record.models)))
    return record, group, drawing.figure.axes[0]


def texts(axes):
    shown = [axes.get_title("left"), axes.get_xlabel(), axes.get_ylabel()]
    return "\n".join([*shown, *(text.get_text() for text in axes.texts)])


def test_gains_are_unnormalised_a_panel_for_each_r(tmp_path):
    record, group, axes = drawn(draw_gains, tmp_path)
    panels = axes.get_figure().axes
    assert [float(panel.get_title("left")[4:].split(":")[0]) for panel in panels] == [*record.r]
    shown = [line.get_ydata().tolist() for line in axes.lines]
    for model in ("XL", "LSTM"):
        assert list(group.result(model, 0.1).differences) in shown
    assert (0.01 * np.array(group.baseline(0.1))).tolist() in shown
    found = texts(axes)
    assert "log scale" in found
    assert "XL: ≥400 (300)" in found
    assert "hardest 10%" in found


def test_steps_are_marked_by_what_they_count_for(tmp_path):
    """XL gains to 300 and by noise to 400, LSTM to 200 only."""
    *_, axes = drawn(draw_gains, tmp_path)
    circles = [line for line in axes.lines if line.get_marker() == "o"]
    filled = [line for line in circles if line.get_mec() == "white"]
    hollow = [line for line in circles if line.get_mfc() == "white"]
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert [line.get_xdata().tolist() for line in filled] == [[200, 300], [200]]
    assert [line.get_xdata().tolist() for line in hollow] == [[400]]
    assert [line.get_xdata().tolist() for line in crosses] == [[300, 400]]


def test_losses_stand_in_the_unit_of_the_record(tmp_path):
    _, group, axes = drawn(draw_losses, tmp_path)
    assert "bits per character" in texts(axes)
    expected = np.array(group.losses["XL"]) / np.log(2)
    assert axes.lines[0].get_ydata() == pytest.approx(expected)
    _, group, axes = drawn(draw_losses, tmp_path, groups=(("XL", "Vanilla"),))
    assert "perplexity" in texts(axes)
    assert axes.lines[0].get_ydata() == pytest.approx(np.exp(group.losses["XL"]))


def test_models_keep_their_colour_in_both_figures(tmp_path):
    _, _, gain = drawn(draw_gains, tmp_path)
    record, _, loss = drawn(draw_losses, tmp_path)
    colours = [Palette(tuple(record.models)).colour(model) for model in record.models]
    assert [line.get_color() for line in loss.lines] == colours
    assert {line.get_color() for line in gain.lines} >= set(colours)


@pytest.mark.parametrize("number", [2, 9, 10, 16, 100])
def test_ticks_stand_at_contexts_and_are_few(tmp_path, number):
    contexts = list(range(16, 16 * number + 16, 16))
    *_, axes = drawn(draw_losses, tmp_path)
    set_contexts(axes, contexts, "c")
    ticks = axes.get_xticks().tolist()
    assert set(ticks) <= set(contexts)
    assert ticks[-1] == contexts[-1]
    assert 2 <= len(ticks) <= MOST_TICKS


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(3, 20000, [10, 100, 1000, 10000]), (0.2, 4, [0.2, 0.5, 1, 2]), (30, 45, [])],
)
def test_round_numbers(low, high, expected):
    assert _round_numbers(low, high) == pytest.approx(expected)


def test_losses_have_a_band_for_the_sampling_of_tokens(tmp_path):
    _, group, axes = drawn(draw_losses, tmp_path)
    first = axes.collections[0].get_paths()[0].vertices
    loss, error = (values["XL"][0] for values in (group.losses, group.loss_errors))
    assert first[:, 1].min() < loss / np.log(2)
    assert (first == [100, (loss - 1.96 * error) / np.log(2)]).all(axis=1).any()
