"""Loss against attention length: what is extrapolated, and where init stands."""

import numpy as np

from tests.reporting.drawings import read
from tests.reporting.laboratory import Laboratory
from txlbench.reporting.experiment_results import read_results
from txlbench.reporting.figures import attention_length
from txlbench.reporting.figures.attention_length import sweep_frame


def test_sweep_says_what_is_extrapolated(laboratory: Laboratory) -> None:
    frame = sweep_frame(read_results(laboratory.finished(seeds=[1])))
    beyond = frame[frame["extrapolated"]]
    assert set(beyond["label"]) == {"absolute"}
    assert set(beyond["attention_length"]) == {32, 64}


def test_extrapolation_is_dashed(laboratory: Laboratory) -> None:
    results, palette = read(laboratory.finished(seeds=[1]))
    figure = attention_length.draw(results, palette)
    assert figure is not None
    dashed = [line for line in figure.figure.axes[0].lines if line.is_dashed()]
    assert [list(line.get_xdata()) for line in dashed] == [[16, 32, 64]]
    assert {line.get_color() for line in dashed} == {palette.colour("absolute")}


def test_the_mean_number_of_keys_of_the_training_regime(laboratory: Laboratory) -> None:
    results, _ = read(laboratory.finished(seeds=[1]))
    regimes = [run.outcome.init.measurement for run in results.runs if run.outcome]
    assert [attention_length.mean_keys(each) for each in regimes] == [
        np.mean([16 + i for i in range(1, 17)]),
        np.mean(range(1, 17)),
        np.mean(range(9, 17)),
    ]
