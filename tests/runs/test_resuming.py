"""A run that was stopped at any step, however it was stopped, ends as one that was not."""

import threading

import pytest
import torch

from tests.runs.trial import finished, lines, prepared, stopping_after, write_spec, write_text
from txlbench.errors import UserError
from txlbench.records.schema import RunState
from txlbench.runs.train_run import execute
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
    results = [each.read_summary().results[0].sweep for each in (run, other)]
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
@pytest.mark.parametrize("precision", ["fp32", pytest.param("bf16", marks=pytest.mark.full)])
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
    corpus = straight.read_facts().corpus
    assert -(-((corpus.tokens["train"] - 1) // 4) // 8) == EPOCH
    for name, stops in STOPS.items():
        run, job = prepared(f"{name}/trial")
        for step in stops:
            stop(job, step)
        assert execute(job, lambda: False) is RunState.FINISHED
        check_same(run, straight)
        assert run.read_status().attempts == len(stops) + 1


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
    before = list(run.read_timings())[-1].seconds
    execute(job, lambda: False)
    seconds = [timing.seconds for timing in run.read_timings()]
    assert seconds == sorted(seconds)
    assert seconds[2] > before
    assert run.read_summary().training.seconds == seconds[-1]


@pytest.mark.parametrize(
    "saving", [{"train.checkpoint_interval": 1}, {"train.checkpoint_minutes": 1e-6}]
)
def test_when_checkpoints_are_written_changes_no_number(saving):
    settings = {"model.dropatt": 0.1, "train.average_from": 0.3, "train.memory_reset": 0.4}
    write_spec(settings)
    straight = finished("straight/trial")
    write_spec({**settings, **saving})
    often = finished("often/trial")
    assert often.id == straight.id
    assert load(often.checkpoints / "previous.pt")["progress"]["step"] == 11
    assert load(straight.checkpoints / "previous.pt")["progress"]["step"] == 10
    check_same(often, straight)


def test_a_run_stopped_between_validations_goes_on_from_there():
    write_spec({"train.checkpoint_interval": 2})
    straight = finished("straight/trial")
    run, job = prepared("killed/trial")
    kill(job, 4)
    assert load(run.checkpoints / "last.pt")["progress"]["step"] == 2
    assert execute(job, lambda: False) is RunState.FINISHED
    check_same(run, straight)


def test_a_checkpoint_that_is_asked_for_is_written_and_training_goes_on():
    write_spec()
    straight = finished("straight/trial")
    run, job = prepared("asked/trial")
    asked, seen = threading.Event(), []

    def each_step():
        last = run.checkpoints / "last.pt"
        seen.append(load(last)["progress"]["step"] if last.exists() else None)
        if len(seen) in (2, 8):
            asked.set()
        return False

    assert execute(job, each_step, asked) is RunState.FINISHED
    assert seen[:12] == [None, None, 2, 2, 5, 5, 5, 5, 8, 10, 10, 12]
    check_same(run, straight)


def change_configuration(run, **train):
    """As someone may who edits a run's directory by hand."""
    config = run.read_config()
    changed = config.model_copy(update={"train": config.train.model_copy(update=train)})
    run.write_config(changed, {}, "trial")


def test_another_configuration_is_refused_saying_what_differs():
    write_spec()
    run, job = prepared()
    interrupt(job, 7)
    before = run.metrics_file.read_bytes(), (run.checkpoints / "last.pt").read_bytes()
    change_configuration(run, lr=0.02, clip=0.5)
    with pytest.raises(UserError) as caught:
        execute(job, lambda: False)
    message = str(caught.value)
    assert "last.pt: made with another configuration: " in message
    assert "train.lr was 0.01 and is 0.02, train.clip was 0.25 and is 0.5" in message
    assert "max_step" not in message
    assert (run.metrics_file.read_bytes(), (run.checkpoints / "last.pt").read_bytes()) == before


def test_what_changes_no_weights_may_differ_and_another_machine_is_noted():
    write_spec()
    run, job = prepared()
    interrupt(job, 7)
    change_configuration(run, log_interval=2)
    torch.set_num_threads(2)
    try:
        assert execute(job, lambda: False) is RunState.FINISHED
    finally:
        torch.set_num_threads(1)
    assert run.read_status().notes == (
        "goes on where threads was 1 and is 2: last digits may differ from an uninterrupted run",
    )
