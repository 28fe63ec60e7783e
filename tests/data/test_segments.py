"""Segments score every prediction exactly once, for every length and stride."""

import itertools

import pytest

from txlbench.data.segments import Segment, Segments

SHAPES = [
    (n, length, stride)
    for n, length in itertools.product(range(25), range(1, 8))
    for stride in range(1, length + 1)
]


def test_every_prediction_is_scored_exactly_once_and_in_order():
    for n, length, stride in SHAPES:
        scored = [
            position
            for segment in list(Segments(n, length, stride))
            for position in range(segment.stop - segment.scored, segment.stop)
        ]
        assert scored == list(range(n)), (n, length, stride)


def test_segments_are_full_but_the_last_and_move_on_by_the_stride():
    for n, length, stride in SHAPES:
        cut = list(Segments(n, length, stride))
        assert all(segment.length == length for segment in cut[:-1])
        assert [segment.start for segment in cut] == [k * stride for k in range(len(cut))]
        assert all(1 <= segment.scored <= segment.length <= length for segment in cut)
        assert all(segment.scored == stride for segment in cut[1:-1])


def test_stride_equal_to_length_lays_segments_end_to_end():
    assert list(Segments(7, 3, 3)) == [Segment(0, 3, 3), Segment(3, 3, 3), Segment(6, 1, 1)]


def test_half_loss_of_an_odd_length_scores_positions_from_half_on():
    assert list(Segments(13, 5, 5 - 5 // 2)) == [
        Segment(0, 5, 5),
        Segment(3, 5, 3),
        Segment(6, 5, 3),
        Segment(9, 4, 2),
    ]


def test_sliding_windows_score_one_prediction_after_the_first():
    assert [s.scored for s in list(Segments(6, 4, 1))] == [4, 1, 1]
    assert [s.length for s in list(Segments(6, 4, 1))] == [4, 4, 4]


def test_fewer_predictions_than_a_segment_make_one_short_segment():
    assert list(Segments(2, 5, 3)) == [Segment(0, 2, 2)]
    assert list(Segments(0, 5, 3)) == []


def test_a_huge_corpus_is_addressed_without_a_list():
    huge = Segments(10**15, 512, 7)
    assert huge[-1].stop == 10**15
    assert huge[len(huge) - 1] == huge[-1]
    assert huge[10**12].start == 7 * 10**12
    with pytest.raises(IndexError):
        huge[len(huge)]


@pytest.mark.parametrize(("length", "stride"), [(4, 0), (4, 5), (0, 0)])
def test_a_stride_that_would_leave_predictions_out_is_a_programming_error(length, stride):
    with pytest.raises(AssertionError):
        Segments(10, length, stride)
