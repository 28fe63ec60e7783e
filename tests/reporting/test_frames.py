"""Tidy frames and the raw table."""

import math
from io import StringIO

import pandas as pd
import pytest

from tests.reporting.laboratory import COMMIT, Laboratory
from txlbench.reporting.experiment_results import read_results
from txlbench.reporting.frames import curves_frame, positions_frame, sweep_frame, table_frame
from txlbench.reporting.provenance import Provenance
from txlbench.reporting.rows import build_rows


def test_curves_hold_every_line_in_both_units(laboratory: Laboratory) -> None:
    directory = laboratory.finished(seeds=[1])
    frame = curves_frame(read_results(directory))
    counts = frame.groupby(["label", "kind"]).size()
    assert counts["xl", "train"] == 50
    assert counts["xl", "valid"] == 10
    assert frame["value"].to_numpy() == pytest.approx(frame["loss"].to_numpy() / math.log(2))


def test_sweep_says_what_is_extrapolated(laboratory: Laboratory) -> None:
    frame = sweep_frame(read_results(laboratory.finished(seeds=[1])))
    beyond = frame[frame["extrapolated"]]
    assert set(beyond["label"]) == {"absolute"}
    assert set(beyond["attention_length"]) == {32, 64}


def test_positions_leave_out_what_was_not_scored(laboratory: Laboratory) -> None:
    directory = laboratory.experiment(seeds=[1])
    line, config, run = laboratory.runs(directory)[0]
    laboratory.finish(run, config, line, by_position=[None, 2.0, 3.0])
    assert list(positions_frame(read_results(directory))["position"]) == [2, 3]


def test_positions_that_half_loss_never_trains_are_left_out(laboratory: Laboratory) -> None:
    frame = positions_frame(read_results(laboratory.finished(seeds=[1])))
    first = frame.groupby("label")["position"].min()
    assert first.to_dict() == {"xl": 1, "xl, no memory": 1, "absolute": 9}


def test_csv_has_full_precision_and_names_its_source(laboratory: Laboratory) -> None:
    directory = laboratory.finished()
    results = read_results(directory)
    provenance = Provenance.of(results, "txlbench ablate small.yaml")
    text = table_frame(build_rows(results), provenance).to_csv()
    frame = pd.read_csv(StringIO(text))
    row = frame[frame["row"] == "xl"].iloc[0]
    losses = [1.9 + 0.01 * seed + 0.02 for seed in (1, 2, 3)]
    assert row["bpc_init"] == pytest.approx(sum(losses) / 3 / math.log(2), rel=1e-15)
    assert row["runs"].split() == [run.id for _, _, run in laboratory.runs(directory)[:3]]
    assert row["commit"] == COMMIT
    assert row["command"] == "txlbench ablate small.yaml"
