"""Streams keep order, lose no target at their joints, and are addressed by step alone."""

import itertools

import numpy as np
import pytest
import torch

from txlbench.data.streams import Streams
from txlbench.errors import UserError


def scored_targets(streams, batch):
    return batch.targets[:, batch.targets.shape[1] - batch.scored :]


@pytest.mark.parametrize("batch_size", [1, 3, 10, 64])
@pytest.mark.parametrize(("tgt_len", "stride"), [(7, 7), (7, 4), (1, 1), (2, 1), (500, 500)])
def test_every_prediction_but_the_remainder_is_a_target_once_an_epoch(batch_size, tgt_len, stride):
    ids = np.arange(1003, dtype=np.uint16)
    streams = Streams(ids, batch_size, tgt_len, stride)
    targets = torch.cat([scored_targets(streams, batch) for batch in streams], dim=1)
    assert targets.flatten().tolist() == list(range(1, 1003 - streams.dropped))
    assert streams.dropped == 1002 % batch_size
    assert streams.predictions == 1002 // batch_size


def test_targets_are_the_tokens_that_follow():
    streams = Streams(np.random.default_rng(0).integers(0, 256, 90, dtype=np.uint8), 4, 5, 5)
    for batch in streams:
        assert batch.tokens.dtype == batch.targets.dtype == torch.int64
        assert torch.equal(batch.tokens[:, 1:], batch.targets[:, :-1])


def test_each_stream_reads_on_where_its_last_segment_ended():
    streams = Streams(np.arange(101), 4, 6, 6)
    for earlier, later in itertools.pairwise(streams):
        assert torch.equal(earlier.targets[:, -1], later.tokens[:, 0])
    assert streams[0].tokens[:, 0].tolist() == [0, 25, 50, 75]


def test_half_loss_repeats_the_positions_that_do_not_count():
    streams = Streams(np.arange(41), 2, 5, 3)
    for earlier, later in itertools.pairwise(streams):
        assert torch.equal(later.tokens[:, 0], earlier.tokens[:, 3])
    assert [batch.scored for batch in streams] == [5, 3, 3, 3, 3, 3]


def test_the_last_short_segment_is_used():
    streams = Streams(np.arange(24), 1, 10, 10)
    assert [batch.tokens.shape[1] for batch in streams] == [10, 10, 3]


def test_steps_go_round_epochs_and_need_no_history():
    ids = np.arange(60)
    streams = Streams(ids, 3, 4, 4)
    length = len(streams)
    assert [streams[k].first for k in range(2 * length)] == ([True] + [False] * (length - 1)) * 2
    fresh = Streams(ids, 3, 4, 4)
    for step in (0, 1, length - 1, length, 5 * length + 2):
        assert torch.equal(streams[step].tokens, fresh[step % length].tokens)


def test_token_weighted_totals_do_not_depend_on_segment_length():
    ids = np.random.default_rng(1).integers(0, 50, 1003)
    totals = {
        sum(int(batch.targets.sum()) for batch in Streams(ids, 1, tgt_len, tgt_len))
        for tgt_len in (143, 150, 1002, 5000)
    }
    assert totals == {int(ids[1:].sum())}


def test_only_the_segment_asked_for_is_read():
    class Recorder:
        def __init__(self):
            self.read = []

        def __len__(self):
            return 1_000_001

        def __getitem__(self, part):
            self.read.append((part.start, part.stop))
            return np.arange(part.start, part.stop)

    ids = Recorder()
    Streams(ids, 2, 10, 10)[3]
    assert ids.read == [(30, 41), (500_030, 500_041)]


def test_batches_do_not_write_into_the_corpus():
    ids = np.arange(50, dtype=np.int64)
    Streams(ids, 2, 5, 5)[0].tokens.zero_()
    assert ids.tolist() == list(range(50))


def test_a_split_too_short_for_the_streams_is_refused_with_numbers_and_remedy():
    with pytest.raises(UserError, match=r"12 tokens, that is 11 predictions.* 16 streams.*most 11"):
        Streams(np.arange(12), 16, 4, 4)
    for length in (0, 1):
        with pytest.raises(UserError, match=r"0 predictions.*longer text"):
            Streams(np.arange(length), 1, 4, 4)


def test_one_prediction_a_stream_is_enough():
    batch = Streams(np.arange(12), 11, 4, 4)[0]
    assert batch.targets.flatten().tolist() == list(range(1, 12))
