"""The loop: what is logged, validated and saved at which step, and how it ends."""

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
from txlbench.training.averaging import WeightAverage
from txlbench.training.loop import Diverged, Hooks, train
from txlbench.training.optimisation import learning_rate


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
    state.average = WeightAverage(state.model)

    def copy():
        return [weight.detach().clone() for weight in state.model.parameters()]

    def validate():
        validated.append(copy())
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
