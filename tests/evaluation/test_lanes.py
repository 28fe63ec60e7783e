"""Lanes and pieces: each prediction that is asked for is scored once, whatever the cut."""

import itertools

import pytest

from txlbench.config.measurements import Measurement
from txlbench.errors import UserError
from txlbench.evaluation.lanes import lanes, pieces


def measured(**given):
    settings = {"regime": "streaming", "split": "valid", "tgt_len": 4, **given}
    return Measurement(**{"stride": settings["tgt_len"], **settings})


def scored(predictions, measurement, n_layer=2):
    """The predictions that are scored, in order, with repetitions."""
    return sorted(
        target
        for lane in lanes(predictions, measurement, n_layer)
        for piece in pieces(lane, measurement)
        for target in range(piece.start + piece.length - piece.scored, piece.start + piece.length)
    )


STREAMS = [
    measured(tgt_len=tgt_len, mem_len=mem_len, batch_size=batch, tokens=tokens, exact=exact)
    for tgt_len, mem_len, batch, tokens, exact in itertools.product(
        (1, 4, 7), (0, 3, 8), (1, 3, 5, 64), (None, 1, 7, 20), (False, True)
    )
]
WINDOWS = [
    measured(regime="windows", tgt_len=tgt_len, stride=stride, **rest)
    for (tgt_len, stride), rest in itertools.product(
        ((1, 1), (4, 1), (4, 4), (7, 3), (9, 2)),
        (
            {"batch_size": batch, "tokens": tokens, "exact": exact}
            for batch in (1, 3, 5, 64)
            for tokens in (None, 1, 7, 20)
            for exact in (False, True)
        ),
    )
]
SIZES = (1, 2, 3, 8, 23, 101)


@pytest.mark.parametrize("kind", [STREAMS, WINDOWS], ids=["streaming", "windows"])
def test_every_prediction_that_is_asked_for_is_scored_once(kind):
    for predictions, measurement in itertools.product(SIZES, kind):
        found = scored(predictions, measurement)
        wanted = min(measurement.tokens or predictions, predictions)
        assert len(found) == len(set(found)) == wanted, (predictions, measurement)
        assert set(found) <= set(range(predictions)), (predictions, measurement)


def test_any_number_of_tokens_fits_into_any_number_of_blocks():
    for predictions in range(1, 30):
        for tokens, batch in itertools.product(range(1, predictions + 1), range(1, 12)):
            found = scored(predictions, measured(tokens=tokens, batch_size=batch))
            assert len(found) == tokens, (predictions, tokens, batch)


@pytest.mark.parametrize("predictions", SIZES)
@pytest.mark.parametrize(("tokens", "batch"), [(1, 1), (7, 3), (20, 5), (20, 64)])
def test_sampled_targets_depend_on_split_tokens_and_batch_only(predictions, tokens, batch):
    """So that rows and attention lengths are compared on the same targets."""
    chosen = {
        tuple(scored(predictions, measurement))
        for measurement in [*STREAMS, *WINDOWS]
        if (measurement.tokens, measurement.batch_size) == (tokens, batch)
    }
    assert len(chosen) == 1


def test_sampled_targets_are_spread_over_the_split():
    found = scored(1000, measured(tokens=20, batch_size=5))
    assert found == [p for end in (200, 400, 600, 800, 1000) for p in range(end - 4, end)]


def test_pieces_are_read_within_their_lane_and_never_longer_than_a_segment():
    for predictions, measurement in itertools.product(SIZES, [*STREAMS, *WINDOWS]):
        for lane in lanes(predictions, measurement, 2):
            assert 0 <= lane.start <= lane.first < lane.end <= predictions
            for piece in pieces(lane, measurement):
                assert lane.start <= piece.start
                assert piece.start + piece.length <= lane.end
                assert 0 <= piece.scored <= piece.length <= measurement.tgt_len


def test_streams_are_read_without_gaps_so_that_memory_is_right():
    for predictions, measurement in itertools.product(SIZES, STREAMS):
        for lane in lanes(predictions, measurement, 2):
            position = lane.start
            for piece in pieces(lane, measurement):
                assert piece.start == position
                position += piece.length
            assert position == lane.end


@pytest.mark.parametrize("kind", [STREAMS, WINDOWS], ids=["streaming", "windows"])
def test_exact_lanes_are_cut_where_one_pass_over_the_split_would_cut(kind):
    for predictions, measurement in itertools.product(SIZES, kind):
        if measurement.exact:
            for lane in lanes(predictions, measurement, 2):
                assert lane.start % measurement.stride == 0, (predictions, measurement)


def test_lead_in_of_streams():
    """Cold over a whole split; one memory before a sample; all that can reach it if exact."""

    def lead(**given):
        lane = lanes(1000, measured(tgt_len=4, mem_len=6, batch_size=4, **given), n_layer=3)[1]
        return lane.first - lane.start

    assert lead() == 0
    assert lead(tokens=8) == 6
    assert lead(exact=True) == 3 * 8  # segments that hold a memory of 6, for each layer
    assert lead(exact=True, tokens=8) >= 3 * 8


def test_there_are_at_most_batch_size_lanes():
    for predictions, measurement in itertools.product(SIZES, [*STREAMS, *WINDOWS]):
        assert len(lanes(predictions, measurement, 2)) <= measurement.batch_size


@pytest.mark.parametrize("exact", [False, True])
def test_a_split_of_one_token_has_nothing_to_predict(exact):
    with pytest.raises(UserError, match="split valid has nothing to predict"):
        lanes(0, measured(exact=exact), 2)
