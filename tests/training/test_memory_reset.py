"""Memory resets: how often, from when on, and that nothing else changes."""

import pytest
import torch

from tests.training.trial import Recorder, config, settings_of, state_of, streams, trained, weights
from txlbench.models.interface import View
from txlbench.training.loop import train
from txlbench.training.memory_reset import with_resets


class Noting:
    """A memory that notes who forgets."""

    view = View(4)

    def __init__(self, notes):
        self.notes = notes

    def forget(self, rows):
        self.notes.append(rows)
        return self


def forgotten(run, step):
    notes = []
    memories = [Noting(notes) for _ in range(run.train.batch_chunk)]
    assert with_resets(memories, run.train, step) == memories
    return torch.cat(notes) if notes else None


def test_each_stream_forgets_with_its_probability_and_independently():
    run = config(batch_size=50, memory_reset=0.3, memory_reset_from=0.0, max_step=2000)
    torch.manual_seed(1)
    drawn = torch.stack([forgotten(run, step) for step in range(2000)]).double()
    assert drawn.mean() == pytest.approx(0.3, abs=0.005)
    assert (drawn.mean(0) - 0.3).abs().max() < 0.05  # every stream
    correlation = torch.corrcoef(drawn.T) - torch.eye(50)
    assert correlation.abs().max() < 0.12
    between_steps = ((drawn[1:] - 0.3) * (drawn[:-1] - 0.3)).mean()
    assert abs(between_steps) < 0.01


@pytest.mark.parametrize(("share", "first"), [(0.0, 0), (0.5, 4), (0.3, 3)])
def test_streams_forget_from_the_share_of_steps_on(share, first):
    run = config(memory_reset=0.5, memory_reset_from=share, max_step=8)
    assert [step for step in range(8) if forgotten(run, step) is not None] == [*range(first, 8)]


def test_without_resets_no_random_number_is_drawn():
    before = torch.get_rng_state()
    assert forgotten(config(), 5) is None
    assert torch.equal(torch.get_rng_state(), before)


def test_until_the_first_reset_a_training_is_the_one_without():
    settings = {"max_step": 4, "log_interval": 1, "mem_len": 12}
    plain, resetting = Recorder(), Recorder()
    trained(config(**settings), plain)
    trained(config(**settings, memory_reset=0.9, memory_reset_from=0.5), resetting)
    losses = [[line["train_loss"] for line in each.training] for each in (plain, resetting)]
    assert losses[0][:2] == losses[1][:2]
    assert losses[0][2] != losses[1][2]


def test_a_batch_in_chunks_forgets_in_the_same_streams():
    settings = {"max_step": 5, "mem_len": 9, "memory_reset": 0.5, "memory_reset_from": 0.0}
    whole = trained(config(**settings), dtype=torch.float64)
    parts = trained(config(**settings, batch_chunk=4), dtype=torch.float64)
    for name, weight in weights(whole).items():
        torch.testing.assert_close(weights(parts)[name], weight, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["transformer", "lstm", "qrnn"])
def test_streams_that_always_forget_train_as_without_memory(kind):
    model = {"kind": kind} if kind != "transformer" else {}
    settings = {"max_step": 4, "memory_reset_from": 0.0}
    reset = config(model, **settings, mem_len=6, memory_reset=1 - 2**-30)
    got = trained(reset, dtype=torch.float64)
    expected = trained(config(model, max_step=4, recurrence=False), dtype=torch.float64)
    for name, weight in weights(expected).items():
        torch.testing.assert_close(weights(got)[name], weight, rtol=0, atol=1e-9)


def test_a_training_stopped_and_continued_keeps_what_streams_know():
    run = config(max_step=6, mem_len=12, memory_reset=0.4, memory_reset_from=0.0)
    straight = trained(run, dtype=torch.float64)
    state = state_of(run, torch.float64)
    recorder = Recorder(stop_at=3)
    train(state, streams(run), settings_of(run), recorder.hooks(state))
    state.memories = [
        memory.replace({name: tensor.clone() for name, tensor in memory.tensors().items()})
        for memory in state.memories
    ]
    assert "known" in state.memories[0].tensors()
    train(state, streams(run), settings_of(run), Recorder().hooks(state))
    for name, weight in weights(straight).items():
        assert torch.equal(weights(state)[name], weight)
