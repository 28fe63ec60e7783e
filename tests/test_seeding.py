"""Every source of randomness follows the seed, and can be put back where it was."""

import io
import random

import pytest
import torch

from txlbench import seeding


def draws() -> list[float]:
    """A few numbers from each source."""
    bits = seeding.bit_source().random_raw(3).tolist()
    return [random.random(), random.gauss(), *torch.rand(3).tolist(), *bits]


def test_the_same_seed_gives_the_same_numbers():
    seeding.seed_everything(7)
    first = draws()
    draws()
    seeding.seed_everything(7)
    assert draws() == first


def test_another_seed_gives_others_from_every_source():
    seeding.seed_everything(7)
    first = draws()
    seeding.seed_everything(8)
    assert not set(first) & set(draws())


@pytest.mark.parametrize("stored", [False, True])
def test_restoring_continues_where_capture_was(stored: bool):
    """Also through a checkpoint that is loaded without executing code."""
    seeding.seed_everything(9)
    draws()
    state = seeding.capture()
    if stored:
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        state = torch.load(file, weights_only=True)
    expected = draws()
    seeding.seed_everything(10)
    seeding.restore(state)
    assert draws() == expected


def test_a_captured_state_does_not_move_on():
    seeding.seed_everything(11)
    state = seeding.capture()
    expected = draws()
    seeding.restore(state)
    draws()
    seeding.restore(state)
    assert draws() == expected
