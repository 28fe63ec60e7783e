"""The newest two checkpoints: how they follow each other, and which of them can be used."""

import random

import pytest

from tests.disk import files_end_at
from tests.training.trial import Recorder, config, trained
from txlbench.training.checkpoint_set import CheckpointSet, set_aside

SEED = 5


def steps(checkpoints):
    """The step of each checkpoint, newest first; None for a damaged one."""
    return [
        (path.name, content and content["progress"]["step"])
        for path, content in checkpoints.newest_first()
    ]


def saved(checkpoints, *numbers):
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
    saved(checkpoints, 1)
    assert steps(checkpoints) == [("last.pt", 1)]
    saved(checkpoints, 2, 3, 4)
    assert steps(checkpoints) == [("last.pt", 4), ("previous.pt", 3)]
    assert len(list(checkpoints.directory.iterdir())) == 2


def test_cut_at_any_byte_the_last_one_is_damaged_and_the_previous_one_is_not(checkpoints):
    saved(checkpoints, 1, 2)
    content, chance = checkpoints.last.read_bytes(), random.Random(SEED)
    for _ in range(60):
        checkpoints.last.write_bytes(content[: chance.randrange(len(content))])
        assert steps(checkpoints) == [("last.pt", None), ("previous.pt", 1)]


def test_zeroed_anywhere_it_is_damaged(checkpoints):
    """A block that never reached the disk, in a tensor too: torch itself does not notice that."""
    saved(checkpoints, 1)
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
    saved(checkpoints, 1, 2)
    checkpoints.last.unlink()
    assert steps(checkpoints) == [("last.pt", None), ("previous.pt", 1)]


def test_a_disk_that_refuses_leaves_both_as_they_were(checkpoints):
    saved(checkpoints, 1, 2)
    before = {path.name: path.read_bytes() for path in checkpoints.directory.iterdir()}
    for size in (0, 100, 3000, len(before["last.pt"]) - 1):
        with files_end_at(size), pytest.raises(OSError, match="File too large") as caught:
            saved(checkpoints, 3)
        assert caught.value.filename == str(checkpoints.last)
        assert {p.name: p.read_bytes() for p in checkpoints.directory.iterdir()} == before


def test_remains_of_a_killed_process_are_removed(checkpoints):
    saved(checkpoints, 1)
    (checkpoints.directory / ".last.pt.x3_k").write_bytes(b"half")
    checkpoints.remove_remains()
    assert [path.name for path in checkpoints.directory.iterdir()] == ["last.pt"]


def test_what_is_set_aside_is_no_checkpoint_any_more(checkpoints):
    saved(checkpoints, 1, 2)
    assert set_aside(checkpoints.last).name == "last.pt.damaged"
    saved(checkpoints, 3)
    assert steps(checkpoints) == [("last.pt", 3), ("previous.pt", 1)]
    set_aside(checkpoints.directory / "missing.pt")
