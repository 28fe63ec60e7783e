"""Learning curves: the lines read."""

import math

import pytest

from tests.reporting.laboratory import Laboratory
from txlbench.reporting.experiment_results import read_results
from txlbench.reporting.figures.learning_curves import curves_frame


def test_curves_hold_every_line_in_both_units(laboratory: Laboratory) -> None:
    directory = laboratory.finished(seeds=[1])
    frame = curves_frame(read_results(directory))
    counts = frame.groupby(["label", "kind"]).size()
    assert counts["xl", "train"] == 50
    assert counts["xl", "valid"] == 10
    assert frame["value"].to_numpy() == pytest.approx(frame["loss"].to_numpy() / math.log(2))
