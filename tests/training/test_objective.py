"""What is trained on: every token once an epoch, and nothing else, with the right memory."""

import pytest
import torch

from tests.training.trial import VOCABULARY, config, state_of, streams, text
from txlbench.config.base import AttentionSpan
from txlbench.config.measurements import training_span
from txlbench.models import attention
from txlbench.training.objective import Auxiliary, scored_loss


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
