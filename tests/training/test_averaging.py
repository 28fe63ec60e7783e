"""The mean of weights: what is validated and kept, beside the weights that train on."""

import torch

from tests.training.trial import config, state_of
from txlbench.training import checkpoint
from txlbench.training.averaging import WeightAverage


def averaged_state():
    state = state_of(config())
    state.average = WeightAverage(state.model)
    return state


def weights(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def test_the_mean_of_what_was_added():
    state, seen = averaged_state(), []
    for step in range(5):
        for weight in state.model.parameters():
            weight.data.add_(0.1 * step)
        state.average.add(state.model)
        seen.append(weights(state.model))
    for name, mean in state.average.weights.items():
        torch.testing.assert_close(mean, torch.stack([each[name] for each in seen]).mean(0))


def test_inside_the_model_carries_the_mean_and_afterwards_its_own():
    state = averaged_state()
    state.average.add(state.model)
    before = weights(state.model)
    for weight in state.model.parameters():
        weight.data.add_(1.0)
    own = weights(state.model)
    with state.evaluation_weights():
        assert all(torch.equal(w, before[n]) for n, w in weights(state.model).items())
    assert all(torch.equal(w, own[n]) for n, w in weights(state.model).items())


def test_before_the_first_step_the_models_own_weights_count():
    state = averaged_state()
    own = weights(state.model)
    with state.evaluation_weights():
        assert all(torch.equal(w, own[n]) for n, w in weights(state.model).items())


def test_the_best_checkpoint_holds_the_mean_and_the_last_one_both(tmp_path):
    state = averaged_state()
    state.average.add(state.model)
    mean = weights(state.model)
    for weight in state.model.parameters():
        weight.data.add_(1.0)
    checkpoint.save_weights(tmp_path / "best.pt", state)
    checkpoint.save_last(tmp_path / "last.pt", state, 0)
    best = checkpoint.load(tmp_path / "best.pt")["model"]
    assert all(torch.equal(best[name], mean[name]) for name in mean)
    again = averaged_state()
    checkpoint.restore(checkpoint.load(tmp_path / "last.pt"), again)
    assert again.average.count == 1
    assert all(torch.equal(again.average.weights[name], mean[name]) for name in mean)
    own = weights(state.model)
    assert all(torch.equal(w, own[n]) for n, w in weights(again.model).items())
