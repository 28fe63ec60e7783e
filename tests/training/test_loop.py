"""The loop: what is logged, validated and saved at which step, and how it ends.

Memory resets: how often, from when on, and that nothing else changes.
"""

import itertools
import math

import pytest
import torch

from tests.training.trial import (
    Recorder,
    config,
    settings_of,
    state_of,
    streams,
    text,
    trained,
    weights,
)
from txlbench.config.base import AttentionSpan
from txlbench.training.loop import Diverged, Hooks, train, with_resets
from txlbench.training.optimisation import learning_rate, weight_average


def run_loop(run, recorder, state=None, ids=None):
    state = state or state_of(run)
    return train(state, streams(run, ids), settings_of(run), recorder.hooks(state)), state


def test_lines_come_at_the_log_interval_and_at_the_end():
    recorder, run = Recorder(), config(max_step=7, log_interval=3, eval_interval=100)
    done, state = run_loop(run, recorder)
    assert done
    assert [line["step"] for line in recorder.training] == [3, 6, 7]
    assert [line["tokens"] for line in recorder.training] == [72, 144, 168]
    assert [line["targets"] for line in recorder.training] == [72, 144, 168]
    assert [line["lr"] for line in recorder.training] == [
        learning_rate(run.train, step) for step in (3, 6, 7)
    ]
    assert state.progress.step == 7


def test_half_loss_counts_tokens_read_and_targets_trained():
    recorder, run = Recorder(), config(loss="half", max_step=3, log_interval=1)
    run_loop(run, recorder)
    assert [(line["tokens"], line["targets"]) for line in recorder.training] == [
        (24, 24),
        (48, 36),
        (72, 48),
    ]


@pytest.mark.parametrize("log_interval", [3, 5])
def test_a_line_is_the_mean_over_the_targets_of_its_interval(log_interval):
    """The last segment of an epoch is shorter: its targets weigh as much as any other."""
    ids = text(4 * 15 + 1)  # segments of 6, 6 and 3 tokens
    single, grouped = Recorder(), Recorder()
    train_settings = {"max_step": 7, "eval_interval": 100}
    run_loop(config(**train_settings, log_interval=1), single, ids=ids)
    run_loop(config(**train_settings, log_interval=log_interval), grouped, ids=ids)
    counts = [4 * 6, 4 * 6, 4 * 3, 4 * 6, 4 * 6, 4 * 3, 4 * 6]
    begin = 0
    for line in grouped.training:
        part = slice(begin, line["step"])
        losses = [each["train_loss"] for each in single.training[part]]
        norms = [each["grad_norm"] for each in single.training[part]]
        total = sum(map(math.prod, zip(losses, counts[part], strict=True)))
        assert line["train_loss"] == pytest.approx(total / sum(counts[part]), rel=1e-9)
        assert line["grad_norm"] == pytest.approx(sum(norms) / len(norms), rel=1e-9)
        begin = line["step"]


def test_validation_comes_at_its_interval_and_at_the_end_with_a_save():
    recorder = Recorder(losses=(2.0, 2.5, 1.5))
    _, state = run_loop(config(max_step=5, eval_interval=2, log_interval=100), recorder)
    assert recorder.events == [
        "validate", "valid line", ("save", 2, True),
        "validate", "valid line", ("save", 4, False),
        "log", "validate", "valid line", ("save", 5, True),
    ]  # fmt: skip
    assert [line for line in recorder.lines if "valid_loss" in line] == [
        {"step": 2, "tokens": 48, "valid_loss": 2.0},
        {"step": 4, "tokens": 96, "valid_loss": 2.5},
        {"step": 5, "tokens": 120, "valid_loss": 1.5},
    ]
    progress = state.progress
    assert (progress.best_step, progress.best_loss, progress.last_loss) == (5, 1.5, 1.5)
    assert state.model.training


def test_an_equal_validation_loss_is_not_better():
    recorder = Recorder(losses=(2.0, 2.0))
    run_loop(config(max_step=2, eval_interval=1), recorder)
    assert recorder.saves == [(1, True), (2, False)]


def test_memory_is_carried_within_an_epoch_and_starts_empty_with_the_next():
    ids = text(4 * 12 + 1)  # two segments an epoch
    run = config(max_step=1, mem_len=9)
    state = state_of(run)
    lengths = []
    for step in range(1, 5):
        later = config(max_step=step, mem_len=9)
        run_loop(later, Recorder(), state, ids)
        lengths.append(state.memories[0].layers[0].shape[1])
    assert lengths == [6, 9, 6, 9]


@pytest.mark.parametrize("chunks", [2, 4])
@pytest.mark.parametrize("loss", ["full", "half"])
def test_a_batch_in_chunks_is_the_same_step(chunks, loss):
    settings = {"max_step": 3, "loss": loss, "mem_len": 5}
    whole = trained(config(**settings), dtype=torch.float64)
    parts = trained(config(**settings, batch_chunk=chunks), dtype=torch.float64)
    for name, weight in weights(whole).items():
        torch.testing.assert_close(weights(parts)[name], weight, rtol=0, atol=1e-6)
    assert len(parts.memories) == chunks
    for layer, remembered in enumerate(whole.memories[0].layers):
        rows = torch.cat([memory.layers[layer] for memory in parts.memories])
        torch.testing.assert_close(rows, remembered, rtol=0, atol=1e-6)


def test_the_gradient_is_that_of_the_mean_over_targets():
    recorder, run = Recorder(), config(max_step=1, log_interval=1)
    state, batch = state_of(run), streams(run)[0]
    hidden, _ = state.model.forward(batch.tokens, state.memories[0])
    loss = state.model.losses(hidden, batch.targets).mean()
    found = torch.autograd.grad(loss, list(state.model.parameters()), allow_unused=True)
    norm = torch.stack([part.norm() for part in found if part is not None]).norm()
    run_loop(run, recorder)
    assert recorder.training[0]["train_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert recorder.training[0]["grad_norm"] == pytest.approx(norm.item(), rel=1e-4)


@pytest.mark.parametrize("step", [1, 3])
def test_a_loss_that_is_not_a_number_ends_the_training_at_its_step(step):
    recorder, run = Recorder(), config(log_interval=1)
    state = state_of(run)

    class Poisoning:
        """Batches that spoil a weight before `step`."""

        def __getitem__(self, index):
            if index == step - 1:
                state.model.blocks[0].feed_forward.inner.weight.data[0, 0] = math.nan
            return streams(run)[index]

    with pytest.raises(Diverged, match=f"^the loss is nan at step {step}$"):
        train(state, Poisoning(), settings_of(run), recorder.hooks(state))
    assert [line["step"] for line in recorder.training] == list(range(1, step))
    assert recorder.saves == []


def test_a_gradient_that_is_not_finite_ends_the_training_at_its_step():
    run = config(log_interval=1)
    state = state_of(run)
    calls = itertools.count(1)
    weight = next(state.model.blocks[0].parameters())
    weight.register_hook(lambda gradient: gradient * (math.inf if next(calls) == 2 else 1))
    with pytest.raises(Diverged, match=r"^the gradient's norm is (inf|nan) at step 2$"):
        run_loop(run, Recorder(), state)


def test_a_validation_loss_that_is_not_a_number_ends_the_training():
    recorder = Recorder(losses=(2.0, math.nan))
    with pytest.raises(Diverged, match=r"^the validation loss is nan at step 4$"):
        run_loop(config(eval_interval=2), recorder)
    assert recorder.saves == [(2, True)]


@pytest.mark.parametrize("call", range(1, 13))
def test_whenever_it_is_asked_to_stop_the_newest_step_is_saved(call):
    recorder = Recorder(stop_at=call)
    done, state = run_loop(config(max_step=6, eval_interval=2), recorder)
    step = state.progress.step
    assert recorder.saves[-1][0] == step
    assert done == (step == 6)
    assert len(recorder.saves) == len({saved for saved, _ in recorder.saves})


def test_a_stop_is_heeded_at_the_next_step():
    for call in range(1, 6):
        _, state = run_loop(config(max_step=6), Recorder(stop_at=call))
        assert state.progress.step == call


def test_a_training_that_is_complete_does_nothing():
    run = config(max_step=2)
    state = trained(run)
    recorder = Recorder()
    assert run_loop(run, recorder, state)[0]
    assert recorder.events == []


def test_weights_are_averaged_after_the_given_share_and_validated():
    """The mean over steps 4 to 6 is what validation sees; training goes on from its own."""
    run, steps, validated = config(max_step=6, average_from=0.5), [], []
    state = state_of(run, torch.float64)
    state.average = weight_average(state.model)

    def copy():
        return [weight.detach().clone() for weight in state.model.parameters()]

    def validate():
        validated.append([weight.detach().clone() for weight in state.evaluated.parameters()])
        return 1.0

    hooks = Hooks(lambda _: None, validate, lambda _: None, lambda: bool(steps.append(copy())))
    train(state, streams(run), settings_of(run), hooks)
    for index, weight in enumerate(validated[0]):
        mean = torch.stack([step[index] for step in steps[3:]]).mean(0)
        torch.testing.assert_close(weight, mean)
    assert len(steps) == 6
    assert any(map(torch.Tensor.any, (a - b for a, b in zip(validated[0], steps[5], strict=True))))


GOLDEN = (2.4252454, 2.4079501, 2.4057395)


def test_the_first_three_losses_are_the_known_ones():
    recorder = Recorder()
    run_loop(config({"dropout": 0.1, "dropatt": 0.1}, log_interval=1, max_step=3), recorder)
    found = [line["train_loss"] for line in recorder.training]
    assert found == pytest.approx(GOLDEN, abs=1e-5), (
        f"the first losses of a training are now {found}. If this change is meant to alter "
        "initial weights, the order of random numbers, the model, the objective or the optimiser, "
        "say so in the changelog and put the new losses here; published numbers then need new "
        "runs. If it is not meant to, the change has a fault."
    )


class Noting:
    """A memory that notes who forgets."""

    span = AttentionSpan(mem_len=4)

    def __init__(self, notes):
        self.notes = notes

    def reset(self, rows):
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


@pytest.mark.parametrize("kind", ["transformer", "lstm", "qrnn", "gated-delta"])
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
