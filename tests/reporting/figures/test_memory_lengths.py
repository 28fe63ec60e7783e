"""The heat map of memory in training and evaluation: where it is drawn, and what its cells say."""

from pathlib import Path

import numpy as np

from tests.reporting.drawings import read, texts
from tests.reporting.laboratory import Laboratory
from txlbench.reporting.figures import memory_lengths

ROWS = [
    {"label": "short", "set": {"train.mem_len": 16}},
    {"label": "long", "set": {"train.mem_len": 64}},
    {"label": "without", "set": {"train.recurrence": False}},
]


def test_cells_are_the_losses_of_rows_with_memory(tmp_path: Path) -> None:
    directory = Laboratory(tmp_path).finished(rows=ROWS, seeds=[1, 2])
    results, palette = read(directory)
    drawing = memory_lengths.draw(results, palette)
    assert drawing is not None
    axes = drawing.figure.axes[0]
    values = np.asarray(axes.images[0].get_array())
    assert values.shape == (2, 4)
    run = next(run for run in results.runs if run.label == "long")
    of_seeds = [
        [point.loss for point in each.outcome.sweep if (point.split, point.attention_length) == at]
        for each in results.runs
        if each.label == "long" and each.outcome
        for at in [(run.config.evaluate.split, 64)]
    ]
    mean = np.mean([run.displayed(loss) for (loss,) in of_seeds])
    assert values[1, 3] == mean
    assert f"{mean:.3f}" in texts(drawing)
    assert len(axes.patches) == 2  # of 16 and of 64 keys
    assert [label.get_text() for label in axes.get_yticklabels()] == ["short (16)", "long (64)"]
    weights = [text.get_weight() for text in axes.texts]
    assert weights.count("bold") >= 4


def test_it_is_for_rows_that_differ_in_memory(tmp_path: Path) -> None:
    results, palette = read(Laboratory(tmp_path).finished(rows=ROWS[1:], seeds=[1]))
    assert memory_lengths.draw(results, palette) is None
