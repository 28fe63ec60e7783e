"""A run that was stopped at any step, however it was stopped, ends as one that was not."""

import pytest
import torch

from tests.execution.trial import finished, lines, prepared, stopping_after, write_spec, write_text
from txlbench.errors import UserError
from txlbench.execution.runner import execute
from txlbench.records.states import RunState
from txlbench.training.checkpoint import load

EPOCH = 14
"""Segments of a stream in the text of 90 words."""


def equal(one, other):
    """Whether nested plain data and tensors are equal to the bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def check_same(run, other):
    assert run.metrics_file.read_bytes() == other.metrics_file.read_bytes()
    for name in ("last.pt", "best.pt"):
        one, two = (load(each.checkpoints / name) for each in (run, other))
        for content in (one, two):
            content.pop("timings_bytes", None)  # times are written with more digits or fewer
        assert equal(one, two), name
    results = [each.read_summary()["results"][0]["sweep"] for each in (run, other)]
    assert results[0] == results[1]


def interrupt(job, steps):
    assert execute(job, stopping_after(steps)) is RunState.INTERRUPTED


def kill(job, steps):
    """As if the process had gone: no checkpoint is written, nothing is tidied."""
    with pytest.raises(KeyboardInterrupt):
        execute(job, stopping_after(steps, KeyboardInterrupt()))


STOPS = {
    "at the first step": [1],
    "before a log line, again and again": [2, 3],
    "after a validation": [6],
    "before an epoch": [EPOCH],
    "after the first step of an epoch": [EPOCH + 1],
}


@pytest.mark.parametrize("stop", [interrupt, kill])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(folder, stop, precision):
    """With dropout, memory, resets and weight averages; all files equal to the bit."""
    write_text(folder / "mine.txt", words=90)
    write_spec(
        {
            "model.dropatt": 0.1,
            "train.precision": precision,
            "train.mem_len": 12,
            "train.max_step": EPOCH + 3,
            "train.average_from": 0.3,
            "train.memory_reset": 0.4,
            "train.memory_reset_from": 0.1,
            "evaluate.attention_lengths": [4],
        }
    )
    straight = finished("straight/trial")
    corpus = straight.read_facts()["corpus"]
    assert -(-((corpus["tokens"]["train"] - 1) // 4) // 8) == EPOCH
    for name, stops in STOPS.items():
        run, job = prepared(f"{name}/trial")
        for step in stops:
            stop(job, step)
        assert execute(job, lambda: False) is RunState.FINISHED
        check_same(run, straight)
        assert run.read_status()["attempts"] == len(stops) + 1


def test_a_run_killed_before_its_first_checkpoint_starts_again():
    write_spec()
    straight = finished("straight/trial")
    run, job = prepared("killed/trial")
    kill(job, 4)
    assert lines(run)
    assert not (run.checkpoints / "last.pt").exists()
    assert execute(job, lambda: False) is RunState.FINISHED
    check_same(run, straight)


def test_time_goes_on_where_it_was():
    write_spec()
    run, job = prepared()
    interrupt(job, 7)
    before = list(run.read_timings())[-1]["seconds"]
    execute(job, lambda: False)
    seconds = [timing["seconds"] for timing in run.read_timings()]
    assert seconds == sorted(seconds)
    assert seconds[2] > before
    assert run.read_summary()["training"]["seconds"] == seconds[-1]


def test_a_damaged_checkpoint_is_refused_by_name_and_lost_is_nothing():
    write_spec()
    run, job = prepared()
    interrupt(job, 7)
    last = run.checkpoints / "last.pt"
    last.write_bytes(last.read_bytes()[:1000])
    before = run.metrics_file.read_bytes()
    with pytest.raises(UserError, match=r"last\.pt: not a whole txlbench checkpoint; delete it"):
        execute(job, lambda: False)
    assert run.metrics_file.read_bytes() == before
