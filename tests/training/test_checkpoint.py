"""Checkpoints: whole, exact, and never able to run code.

The newest two checkpoints: how they follow each other, and which of them can be used.

Checkpoints fall due by steps, by minutes, and when they are asked for.
"""

import contextlib
import os
import pickle
import random
import threading
import time

import pytest
import torch

from tests.disk import files_end_at
from tests.training.trial import (
    VOCABULARY,
    Recorder,
    config,
    settings_of,
    state_of,
    streams,
    text,
    trained,
    weights,
)
from txlbench import seeding
from txlbench.config.counting import resume_bytes
from txlbench.errors import UserError
from txlbench.training import checkpoint
from txlbench.training.checkpoint import CheckpointSet, SaveSchedule, set_aside
from txlbench.training.loop import train
from txlbench.training.optimisation import weight_average

pytestmark = pytest.mark.filterwarnings("ignore:Detected pickle protocol")

DROPPED = {"dropout": 0.2, "dropatt": 0.1}


def saved(path, run, recorder):
    """A checkpoint written after the steps of `run`."""
    state = trained(run, recorder)
    checkpoint.save_last(path, state, 123)
    return state


@pytest.fixture
def whole(tmp_path):
    path = tmp_path / "last.pt"
    saved(path, config(DROPPED, max_step=2), Recorder())
    return path


def test_a_checkpoint_loads_with_weights_only(whole):
    content = torch.load(whole, weights_only=True)
    assert content["progress"]["step"] == 2
    assert set(content) >= {"model", "optimiser", "memories", "random"}


@pytest.mark.parametrize("average", [False, True])
def test_a_restored_state_trains_on_as_if_it_had_never_stopped(tmp_path, average):
    """Weights, moments, memories, random sources and interval sums, to the last bit."""
    settings = {"mem_len": 8, "batch_chunk": 2, "log_interval": 3, "eval_interval": 100}
    long = config(DROPPED, **settings, max_step=5, **({"average_from": 0.2} if average else {}))
    path = tmp_path / "last.pt"

    def fresh():
        state = state_of(long)
        state.average = weight_average(state.model) if average else None
        return state

    straight, recorder = fresh(), Recorder()
    train(straight, streams(long), settings_of(long), recorder.hooks(straight))

    first, before = fresh(), Recorder(stop_at=2)
    train(first, streams(long), settings_of(long), before.hooks(first))
    checkpoint.save_last(path, first, 123)
    seeding.seed_everything(99)

    second, after = fresh(), Recorder()
    seeding.seed_everything(98)
    assert checkpoint.restore(checkpoint.load(path), second) == 123
    train(second, streams(long), settings_of(long), after.hooks(second))

    assert before.lines + after.lines == recorder.lines
    for name, weight in weights(straight).items():
        assert torch.equal(weights(second)[name], weight), name
    for one, other in zip(straight.memories, second.memories, strict=True):
        assert all(map(torch.equal, one.layers, other.layers))
    if average:
        assert second.average.n_averaged == straight.average.n_averaged == 4
        means = zip(second.evaluated.parameters(), straight.evaluated.parameters(), strict=True)
        assert all(torch.equal(one, other) for one, other in means)


def test_random_sources_come_back(tmp_path):
    path = tmp_path / "last.pt"
    state = saved(path, config(max_step=1), Recorder())

    def draw():
        return random.random(), torch.rand(3).tolist(), seeding.bit_source().random_raw()

    drawn = draw()
    seeding.seed_everything(5)
    checkpoint.restore(checkpoint.load(path), state)
    assert draw() == drawn


def refused(path):
    with pytest.raises(UserError) as caught:
        checkpoint.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_its_size_is_what_was_reckoned_with(tmp_path):
    """Memory is most of it here: states of the segment beside it would nearly double the file."""
    run = config({"d_model": 64}, tgt_len=256, mem_len=256, batch_size=8, max_step=2)
    state = state_of(run)
    train(state, streams(run, text(9000)), settings_of(run), Recorder().hooks(state))
    checkpoint.save_last(tmp_path / "last.pt", state, 0)
    assert (tmp_path / "last.pt").stat().st_size == pytest.approx(
        resume_bytes(run, VOCABULARY), rel=0.05
    )


def test_a_missing_checkpoint_is_named(tmp_path):
    assert "no such checkpoint" in refused(tmp_path / "best.pt")


def test_a_directory_is_refused(tmp_path):
    refused(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.5, 0.9, 0.99])
def test_a_torn_checkpoint_is_refused(whole, share):
    content = whole.read_bytes()
    whole.write_bytes(content[: int(len(content) * share)])
    refused(whole)


def test_bytes_flipped_anywhere_never_give_a_traceback(whole):
    """A changed tensor may pass; whatever does not load is refused by name."""
    content, chance = whole.read_bytes(), random.Random(1)
    for _ in range(150):
        spoilt = bytearray(content)
        for _ in range(4):
            spoilt[chance.randrange(len(spoilt))] ^= 1 << chance.randrange(8)
        whole.write_bytes(spoilt)
        with contextlib.suppress(UserError):
            checkpoint.load(whole)


def test_bytes_flipped_in_the_description_never_give_a_traceback(tmp_path):
    """The pickled description is what a loader interprets."""
    path, chance = tmp_path / "last.pt", random.Random(2)
    content = pickle.dumps({"schema": "txlbench.checkpoint/1", "progress": {"step": 1}}, protocol=2)
    for _ in range(600):
        spoilt = bytearray(content)
        spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        path.write_bytes(spoilt)
        with contextlib.suppress(UserError):
            checkpoint.load(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"not a checkpoint", b"PK\x03\x04", b"\x80\x02.", bytes(range(256)) * 4],
    ids=["empty", "text", "zip header", "pickle header", "binary"],
)
def test_foreign_bytes_are_refused(tmp_path, content):
    path = tmp_path / "last.pt"
    path.write_bytes(content)
    refused(path)


@pytest.mark.parametrize(
    "content",
    [torch.ones(3), {"model": {}}, [1, 2], {"schema": "txlbench.checkpoint/9"}],
    ids=["tensor", "no schema", "list", "other version"],
)
def test_other_torch_files_are_refused(tmp_path, content):
    path = tmp_path / "last.pt"
    torch.save(content, path)
    refused(path)


class Malice:
    """Makes a directory when it is unpickled."""

    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return os.mkdir, (self.target,)


@pytest.mark.parametrize("how", ["torch", "pickle", "hidden"])
def test_a_malicious_file_is_refused_and_does_nothing(tmp_path, how):
    path, mark = tmp_path / "best.pt", tmp_path / "mark"
    malice = Malice(str(mark))
    if how == "pickle":
        path.write_bytes(pickle.dumps(malice))
    else:
        content = {"schema": checkpoint.SCHEMA, "model": {}, "progress": malice}
        torch.save(malice if how == "torch" else content, path)
    refused(path)
    assert not mark.exists()
    # The same file does harm where it is trusted: the test would notice.
    torch.load(path, weights_only=False) if how != "pickle" else pickle.loads(path.read_bytes())
    assert mark.exists()


def test_a_failed_write_leaves_the_checkpoint_before(whole, monkeypatch):
    before = whole.read_bytes()
    state = state_of(config())

    def full(content, file):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        checkpoint.save_last(whole, state, 0)
    assert whole.read_bytes() == before
    assert list(whole.parent.iterdir()) == [whole]


def test_best_weights_hold_no_optimiser(tmp_path):
    path = tmp_path / "best.pt"
    state = trained(config(max_step=2))
    checkpoint.write_best(path, checkpoint.best_content(state))
    content = checkpoint.load(path)
    assert set(content) == {"schema", "model", "progress"}
    assert all(torch.equal(content["model"][name], w) for name, w in weights(state).items())


SEED = 5


def steps(checkpoints):
    """The step of each checkpoint, newest first; None for a damaged one."""
    return [
        (path.name, content and content["progress"]["step"])
        for path, content in checkpoints.newest_first()
    ]


def checkpoint_set_saved(checkpoints, *numbers):
    state = trained(config(max_step=1), Recorder())
    for step in numbers:
        state.progress.step = step
        checkpoints.save(state, 10 * step, 0, {})
    return state


@pytest.fixture
def checkpoints(tmp_path):
    return CheckpointSet(tmp_path / "checkpoints")


def test_the_newest_two_are_kept(checkpoints):
    assert steps(checkpoints) == []
    checkpoint_set_saved(checkpoints, 1)
    assert steps(checkpoints) == [("last.pt", 1)]
    checkpoint_set_saved(checkpoints, 2, 3, 4)
    assert steps(checkpoints) == [("last.pt", 4), ("previous.pt", 3)]
    assert len(list(checkpoints.directory.iterdir())) == 2


def test_cut_at_any_byte_the_last_one_is_damaged_and_the_previous_one_is_not(checkpoints):
    checkpoint_set_saved(checkpoints, 1, 2)
    content, chance = checkpoints.last.read_bytes(), random.Random(SEED)
    for _ in range(60):
        checkpoints.last.write_bytes(content[: chance.randrange(len(content))])
        assert steps(checkpoints) == [("last.pt", None), ("previous.pt", 1)]


def test_zeroed_anywhere_it_is_damaged(checkpoints):
    """A block that never reached the disk, in a tensor too: torch itself does not notice that."""
    checkpoint_set_saved(checkpoints, 1)
    content, chance, noticed = checkpoints.last.read_bytes(), random.Random(SEED), 0
    for _ in range(100):
        begin = chance.randrange(len(content) - 64)
        block = content[begin : begin + 64]
        checkpoints.last.write_bytes(content[:begin] + bytes(64) + content[begin + 64 :])
        damaged = steps(checkpoints) == [("last.pt", None)]
        assert damaged or _is_padding(block)
        noticed += damaged
    assert noticed > 50


def _is_padding(block):
    """Between members: nothing that is read."""
    return len(set(block)) <= 2 or b"FB" in block or b"PK" in block or b"ZZZZ" in block


def test_a_missing_last_one_counts_as_damaged(checkpoints):
    checkpoint_set_saved(checkpoints, 1, 2)
    checkpoints.last.unlink()
    assert steps(checkpoints) == [("last.pt", None), ("previous.pt", 1)]


def test_a_disk_that_refuses_leaves_both_as_they_were(checkpoints):
    checkpoint_set_saved(checkpoints, 1, 2)
    before = {path.name: path.read_bytes() for path in checkpoints.directory.iterdir()}
    for size in (0, 100, 3000, len(before["last.pt"]) - 1):
        with files_end_at(size), pytest.raises(OSError, match="File too large") as caught:
            checkpoint_set_saved(checkpoints, 3)
        assert caught.value.filename == str(checkpoints.last)
        assert {p.name: p.read_bytes() for p in checkpoints.directory.iterdir()} == before


def test_remains_of_a_killed_process_are_removed(checkpoints):
    checkpoint_set_saved(checkpoints, 1)
    (checkpoints.directory / ".last.pt.x3_k").write_bytes(b"half")
    checkpoints.remove_remains()
    assert [path.name for path in checkpoints.directory.iterdir()] == ["last.pt"]


def test_what_is_set_aside_is_no_checkpoint_any_more(checkpoints):
    checkpoint_set_saved(checkpoints, 1, 2)
    assert set_aside(checkpoints.last).name == "last.pt.damaged"
    checkpoint_set_saved(checkpoints, 3)
    assert steps(checkpoints) == [("last.pt", 3), ("previous.pt", 1)]
    set_aside(checkpoints.directory / "missing.pt")


def schedule(step=0, asked=None, **train):
    return SaveSchedule(config(**train).train, step, asked or threading.Event())


def test_by_steps_since_the_last_one():
    due = schedule(step=10, checkpoint_interval=3, checkpoint_minutes=None)
    assert [step for step in range(10, 15) if due.is_due(step)] == [13, 14]
    due.saved(14)
    assert [step for step in range(14, 19) if due.is_due(step)] == [17, 18]


def test_by_minutes_since_the_last_one():
    due = schedule(checkpoint_minutes=0.05 / 60)
    assert not due.is_due(1)
    time.sleep(0.06)
    assert due.is_due(2)
    due.saved(2)
    assert not due.is_due(3)


def test_when_asked_for_once():
    asked = threading.Event()
    due = schedule(asked=asked, checkpoint_minutes=None)
    assert not due.is_due(10**9)
    asked.set()
    assert due.is_due(1)
    due.saved(1)
    assert not due.is_due(2)


def test_every_ten_minutes_unless_told_otherwise():
    assert config().train.checkpoint_minutes == 10
    assert config().train.checkpoint_interval is None
