"""Losses by row and by position."""

import numpy as np

from tests.reporting.drawings import read
from tests.reporting.laboratory import Laboratory, quality
from txlbench.reporting.experiment_results import read_results
from txlbench.reporting.figures import losses
from txlbench.reporting.figures import losses as rows_figure
from txlbench.reporting.figures.losses import positions_frame


def test_positions_leave_out_what_was_not_scored(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1])
    line, config, run = laboratory.runs(directory)[0]
    laboratory.finish(run, config, line, by_position=[None, 2.0, 3.0])
    assert list(positions_frame(read_results(directory))["position"]) == [2, 3]


def test_positions_that_half_loss_never_trains_are_left_out(laboratory: Laboratory) -> None:
    frame = positions_frame(read_results(laboratory.finished(seeds=[1])))
    first = frame.groupby("label")["position"].min()
    assert first.to_dict() == {"xl": 1, "xl, no memory": 1, "absolute": 9}


def test_rows_stand_in_measured_order(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1])
    for line, config, run in laboratory.runs(directory):
        laboratory.finish(run, config, line, loss=lambda config: 4 - quality(config))
    figure = rows_figure.draw_loss_by_row(*read(directory))
    assert figure is not None
    names = [text.get_text() for text in figure.figure.axes[0].get_yticklabels()]
    assert names == ["absolute", "xl, no memory", "xl"]


def test_long_segments_are_averaged_in_growing_bins(laboratory: Laboratory) -> None:
    train = {"tgt_len": 256, "mem_len": 256, "batch_size": 4, "max_step": 20}
    figure = losses.draw_loss_by_position(*read(laboratory.finished(seeds=[1, 2], train=train)))
    assert figure is not None
    positions = np.asarray(figure.figure.axes[0].lines[0].get_xdata(), dtype=float)
    assert list(positions[:4]) == [1, 2, 3, 4]
    assert np.diff(positions)[-1] > 10
    assert len(positions) < 64


def test_a_single_seed_has_a_band_for_the_sampling_of_tokens(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1], rows=[{"label": "a"}])
    line, config, run = laboratory.runs(directory)[0]
    errors = {"by_position": [2.0, None, 3.0], "errors_by_position": [0.1, None, 0.2]}
    laboratory.finish(run, config, line, **errors)
    drawing = losses.draw_loss_by_position(*read(directory))
    assert drawing is not None
    (band,) = drawing.figure.axes[0].collections
    heights = {tuple(np.round(vertex, 6)) for vertex in band.get_paths()[0].vertices}
    for position, loss, error in ((1, 2.0, 0.1), (3, 3.0, 0.2)):
        for side in (-1.96, 1.96):
            assert (position, round((loss + side * error) / np.log(2), 6)) in heights
    assert "95 %" in drawing.subtitle
