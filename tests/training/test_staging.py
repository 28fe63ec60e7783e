"""Batches that are read ahead are the batches of their steps, in whatever order these are asked."""

import time
from dataclasses import dataclass

import pytest
import torch

from tests.training.trial import CPU, config, streams
from txlbench.training.staging import Staged, staged


@dataclass
class Slow:
    """A source that takes its time and notes what it read."""

    source: object

    def __post_init__(self):
        self.read = []

    def __getitem__(self, step):
        self.read.append(step)
        time.sleep(0.01)
        return self.source[step]


def test_each_step_gets_its_batch_and_each_is_read_once():
    source = Slow(streams(config()))
    ahead = Staged(source, CPU)
    for step in (0, 1, 2, 3, 20, 21, 5):
        batch, expected = ahead[step], source.source[step]
        assert torch.equal(batch.tokens, expected.tokens)
        assert torch.equal(batch.targets, expected.targets)
        assert (batch.scored, batch.first) == (expected.scored, expected.first)
    ahead.close()
    # What was asked for and what came next; the very last may not have been begun.
    assert {*source.read} - {6} == {0, 1, 2, 3, 4, 5, 20, 21, 22}
    assert [source.read.count(step) for step in (0, 1, 2, 3)] == [1] * 4


def test_the_next_batch_is_read_while_the_present_one_is_used():
    source = Slow(streams(config()))
    ahead = Staged(source, CPU)
    _ = ahead[0]
    time.sleep(0.1)
    begin = time.perf_counter()
    _ = ahead[1]
    assert time.perf_counter() - begin < 0.008
    ahead.close()


def test_a_fault_shows_at_the_step_that_it_concerns():
    class Broken:
        def __getitem__(self, step):
            if step == 1:
                raise OSError("the disk is gone")
            return streams(config())[step]

    ahead = Staged(Broken(), CPU)
    assert ahead[0].first
    with pytest.raises(OSError, match="the disk is gone"):
        _ = ahead[1]
    ahead.close()


def test_a_cpu_reads_when_it_needs():
    source = streams(config())
    with staged(source, CPU) as batches:
        assert batches is source
