"""What is trained on, and the step: targets, learning rate, clipping, Adam, averaged weights."""

import itertools
import math
import subprocess
import sys

import pytest
import torch
from torch import nn

from tests.training.trial import VOCABULARY, config, state_of, streams, text
from txlbench.config.base import AttentionSpan
from txlbench.config.measurements import training_span
from txlbench.models import attention
from txlbench.training import checkpoint
from txlbench.training.optimisation import (
    Auxiliary,
    apply_gradients,
    build_optimiser,
    learning_rate,
    scored_loss,
    weight_average,
)


def rates(**train):
    run = config(**train)
    return [learning_rate(run.train, step) for step in range(1, run.train.max_step + 1)]


def test_warm_up_is_linear_and_reaches_the_peak_at_its_last_step():
    assert rates(lr=0.5, warmup_step=4, max_step=20)[:4] == pytest.approx([0.125, 0.25, 0.375, 0.5])


def test_the_cosine_begins_where_the_warm_up_ends():
    """No jump at the joint: the steps before and after it both have the peak."""
    found = rates(lr=0.5, warmup_step=4, max_step=20)
    assert found[3] == found[4] == 0.5
    assert all(later < earlier for earlier, later in itertools.pairwise(found[4:]))


def test_the_cosine_goes_towards_zero_and_stays_positive():
    found = rates(lr=1.0, warmup_step=0, max_step=1000)
    assert found[0] == 1.0
    assert found[500] == pytest.approx(0.5)
    assert 0 < found[-1] < 1e-5
    assert found[250] == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))


def test_a_training_that_is_all_warm_up():
    assert rates(lr=1.0, warmup_step=4, max_step=4) == pytest.approx([0.25, 0.5, 0.75, 1.0])
    assert rates(lr=1.0, warmup_step=0, max_step=1) == [1.0]


def weighted(gradients, **train):
    """A weight of zeros that took one step for each gradient; the norms; its configuration."""
    run = config(**train)
    weight = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    optimiser = build_optimiser([weight], run.train)
    norms = []
    for step, gradient in enumerate(gradients, 1):
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        rate = learning_rate(run.train, step)
        norms.append(apply_gradients(optimiser, run.train, rate).item())
    return weight, norms


def adam(gradients, rates, clip):
    """Kingma and Ba 2015, algorithm 1, number by number, over clipped gradients."""
    weights, first, second = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        scale = min(1.0, clip / math.hypot(*gradient))
        for i, g in enumerate(gradient):
            first[i] = 0.9 * first[i] + 0.1 * g * scale
            second[i] = 0.999 * second[i] + 0.001 * (g * scale) ** 2
            mean, square = first[i] / (1 - 0.9**t), second[i] / (1 - 0.999**t)
            weights[i] -= rate * mean / (math.sqrt(square) + 1e-8)
    return weights


def test_steps_are_those_of_adam_over_clipped_gradients():
    train = {"lr": 0.1, "clip": 0.5, "warmup_step": 2, "max_step": 6}
    gradients = [[3.0, -4.0], [0.1, 0.2], [-0.6, 0.05], [30.0, 40.0]]
    weight, norms = weighted(gradients, **train)
    expected = adam(gradients, rates(**train)[:4], clip=0.5)
    assert weight.tolist() == pytest.approx(expected, rel=1e-5)
    assert norms == pytest.approx([math.hypot(*gradient) for gradient in gradients])


def test_the_step_is_that_of_the_unfused_adam():
    torch.manual_seed(1)
    start, gradients = torch.randn(50), torch.randn(3, 50) * 0.01
    run = config(lr=0.01, clip=1e9)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    fused = build_optimiser([ours], run.train)
    plain = torch.optim.Adam([theirs], lr=0.01, fused=False, foreach=False)
    for gradient in gradients:
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        apply_gradients(fused, run.train, 0.01)
        plain.step()
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_training_loads_no_compiler():
    model = {"n_layer": 1, "d_model": 8, "n_head": 2, "d_head": 4, "d_inner": 8, "dropout": 0.1}
    code = (
        "import sys; from tests.benchmarks.training_ours import train; "
        f"train({model}, 11, 2, 4, 1, 'fp32')(); print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n", "it takes as long as half of PyTorch: find who imports it"


def test_gradients_are_gone_after_the_step():
    weight, _ = weighted([[1.0, 1.0]])
    assert weight.grad is None


def averaged_state():
    state = state_of(config())
    state.average = weight_average(state.model)
    return state


def weights(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def moved(state):
    """Adds the weights as they are to the mean, then moves them; returns what was added."""
    state.average.update_parameters(state.model)
    added = weights(state.model)
    for weight in state.model.parameters():
        weight.data.add_(1.0)
    return added


def test_the_mean_of_what_was_added_to_the_bit():
    """As m + (w - m) / n from step to step, each weight rounded once."""
    state, mean = averaged_state(), {}
    for step in range(50):
        for weight in state.model.parameters():
            weight.data.add_(0.1 * step)
        state.average.update_parameters(state.model)
        for name, weight in weights(state.model).items():
            mean[name] = weight if name not in mean else mean[name].lerp(weight, 1 / (step + 1))
    found = weights(state.evaluated)
    assert all(torch.equal(found[name], mean[name]) for name in mean)


def test_the_mean_is_what_is_evaluated_and_training_goes_on_from_its_own_weights():
    state = averaged_state()
    added = moved(state)
    assert all(torch.equal(w, added[n]) for n, w in weights(state.evaluated).items())
    assert all(torch.equal(w, added[n] + 1.0) for n, w in weights(state.model).items())


def test_before_the_first_step_the_models_own_weights_count():
    state = averaged_state()
    for weight in state.model.parameters():
        weight.data.add_(1.0)
    assert state.evaluated is state.model


def test_the_best_checkpoint_holds_the_mean_and_the_last_one_both(tmp_path):
    state = averaged_state()
    mean = moved(state)
    checkpoint.write_best(tmp_path / "best.pt", checkpoint.best_content(state))
    checkpoint.save_last(tmp_path / "last.pt", state, 0)
    best = checkpoint.load(tmp_path / "best.pt")["model"]
    assert all(torch.equal(best[name], mean[name]) for name in mean)
    last = checkpoint.load(tmp_path / "last.pt")
    kept = checkpoint.evaluation_weights(last)
    assert kept.keys() == last["model"].keys() == best.keys()
    assert all(torch.equal(kept[name], best[name]) for name in best)
    again = averaged_state()
    checkpoint.restore(last, again)
    assert again.average.n_averaged == 1
    assert all(torch.equal(w, mean[n]) for n, w in weights(again.evaluated).items())
    own = weights(state.model)
    assert all(torch.equal(w, own[n]) for n, w in weights(again.model).items())


def test_the_last_checkpoints_weights_are_its_own_where_nothing_was_averaged(tmp_path):
    for state in (state_of(config()), averaged_state()):
        checkpoint.save_last(tmp_path / "last.pt", state, 0)
        content = checkpoint.load(tmp_path / "last.pt")
        assert checkpoint.evaluation_weights(content) is content["model"]


@pytest.mark.parametrize("loss", ["full", "half"])
@pytest.mark.parametrize("tgt_len", [1, 2, 3, 6, 7, 500])
def test_every_token_is_a_target_once_an_epoch(loss, tgt_len):
    import numpy as np

    run = config(loss=loss, tgt_len=tgt_len, batch_size=3)
    batches = streams(run, np.arange(100, dtype=np.int64))  # each token says where it stands
    found = torch.cat([batch.targets[:, -batch.scored :].flatten() for batch in batches])
    assert sorted(found.tolist()) == list(range(1, 100))


@pytest.mark.parametrize(("tgt_len", "scored"), [(1, 1), (2, 1), (5, 3), (6, 3)])
def test_half_loss_scores_the_positions_from_the_middle_on(tgt_len, scored):
    run = config(loss="half", tgt_len=tgt_len)
    assert run.train.stride == scored == len(range(tgt_len // 2, tgt_len))
    assert [streams(run)[step].scored for step in (1, 2)] == [scored, scored]


def gradients(run, tokens, targets, scored, auxiliary=None):
    state = state_of(run, torch.float64)
    losses, _ = scored_loss(state.model, tokens, targets, scored, state.memories[0], auxiliary)
    (losses.scored + losses.auxiliary).backward()
    grads = [weight.grad for weight in state.model.parameters() if weight.grad is not None]
    return losses.scored.item(), torch.cat([grad.flatten() for grad in grads])


@pytest.mark.parametrize("tgt_len", [6, 7])
def test_unscored_positions_get_no_gradient_from_their_own_targets(tgt_len):
    run = config(loss="half", tgt_len=tgt_len)
    batch = streams(run)[1]
    loss, before = gradients(run, batch.tokens, batch.targets, batch.scored)
    for position in range(tgt_len):
        changed = batch.targets.clone()
        changed[:, position] = (changed[:, position] + 1) % VOCABULARY
        other, after = gradients(run, batch.tokens, changed, batch.scored)
        same = torch.equal(before, after)
        assert same == (other == loss) == (position < tgt_len // 2), position


def test_the_loss_is_a_sum_over_the_scored_positions():
    run = config()
    state, batch = state_of(run), streams(run)[0]
    hidden, _ = state.model.forward(batch.tokens, state.memories[0])
    losses = state.model.losses(hidden, batch.targets)
    for scored in (1, 4, 6):
        found, _ = scored_loss(state.model, batch.tokens, batch.targets, scored, state.memories[0])
        assert found.scored.item() == pytest.approx(losses[:, -scored:].sum().item(), rel=1e-6)


def test_auxiliary_positions_train_on_what_is_not_scored_and_report_what_is():
    run = config(loss="half")
    batch = streams(run)[1]
    every = Auxiliary(positions=True)
    loss, both = gradients(run, batch.tokens, batch.targets, 3, every)
    assert loss == gradients(run, batch.tokens, batch.targets, 3)[0]
    torch.testing.assert_close(both, gradients(run, batch.tokens, batch.targets, 6)[1])


def test_auxiliary_layers_predict_the_scored_targets_from_their_own_states():
    run = config({"n_layer": 3}, loss="half")
    state, batch = state_of(run, torch.float64), streams(run)[1]
    seen = {}
    state.model.forward(
        batch.tokens, state.memories[0], lambda layer, hidden, _: seen.update({layer: hidden})
    )
    losses, _ = scored_loss(
        state.model, batch.tokens, batch.targets, 3, state.memories[0], Auxiliary(frozenset({0, 1}))
    )
    expected = sum(
        state.model.losses(seen[layer][:, 3:], batch.targets[:, 3:]).sum() for layer in (0, 1)
    )
    torch.testing.assert_close(losses.auxiliary, expected)


def test_auxiliary_layers_leave_attention_fused(monkeypatch):
    run, calls = config({"n_layer": 3}), []
    state, batch = state_of(run), streams(run)[1]
    fused = attention.fused_attention
    monkeypatch.setattr(
        attention, "fused_attention", lambda *given: (calls.append(1), fused(*given))[1]
    )
    every = Auxiliary(frozenset({0, 1}))
    scored_loss(state.model, batch.tokens, batch.targets, 6, state.memories[0], every)
    assert len(calls) == 3


def test_auxiliary_layers_end_one_after_the_other_in_the_first_half():
    """Layer k of n ends once k / 2n of the steps are done (Al-Rfou et al. 2018)."""
    run = config(max_step=80, aux_layers=True)
    active = [sorted(Auxiliary.at(run.train, 4, step).layers) for step in range(80)]
    assert active[:10] == [[0, 1, 2]] * 10
    assert active[10:20] == [[1, 2]] * 10
    assert active[20:30] == [[2]] * 10
    assert active[30:] == [[]] * 50
    assert Auxiliary.at(config().train, 4, 0) == Auxiliary()


@pytest.mark.parametrize("loss", ["full", "half"])
@pytest.mark.parametrize(("tgt_len", "mem_len"), [(6, 6), (6, 4), (7, 12), (5, 2), (1, 3)])
def test_memory_is_what_stands_before_the_segment(loss, tgt_len, mem_len):
    """In one layer, a segment with memory is the end of one pass over both.

    With half loss segments overlap, and memory must not hold tokens of the segment itself.
    """
    run = config({"n_layer": 1}, loss=loss, tgt_len=tgt_len, mem_len=mem_len, batch_size=2)
    state, batches = state_of(run, torch.float64), streams(run, text(81))
    stream = torch.stack([torch.as_tensor(text(81)[start : start + 41]) for start in (0, 40)])
    memory, start = state.memories[0], 0
    for batch in batches:
        found, memory = scored_loss(state.model, batch.tokens, batch.targets, batch.scored, memory)
        end = start + batch.tokens.shape[1]
        begin, first = max(0, start - mem_len), end - batch.scored
        seen = stream[:, begin : end + 1].long()
        hidden, _ = state.model.forward(
            seen[:, :-1], state.model.initial_state(2, AttentionSpan(mem_len=0))
        )
        expected = state.model.losses(hidden, seen[:, 1:])[:, first - begin :].sum()
        torch.testing.assert_close(found.scored, expected)
        start += run.train.stride
    assert end == 40


def test_the_training_view_is_the_configured_one():
    run = config({"clamp_len": 9, "same_length": True}, tgt_len=7, mem_len=5, loss="half")
    assert training_span(run) == AttentionSpan(mem_len=5, clamp_len=9, same_length=True, stride=4)
    assert training_span(config(recurrence=False)).mem_len == 0
