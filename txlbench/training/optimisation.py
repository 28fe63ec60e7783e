"""Adam, its learning rate at every step, and clipping, as in the official scripts.

Averaging of weights over the last part of a training (Polyak & Juditsky 1992; AWD-LSTM).
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from txlbench.config.train import TrainConfig


def learning_rate(config: TrainConfig, step: int) -> float:
    """The rate of step 1, 2, ..., max_step: linear warm-up to lr, then a cosine towards zero.

    The cosine runs over the steps after warm-up, so that there is no jump where they meet; the
    official PyTorch code counts it from step zero (erratum E25). Both are equal without warm-up.
    """
    if step <= config.warmup_step:
        return config.lr * step / config.warmup_step
    after = max(1, config.max_step - config.warmup_step)
    return config.lr * 0.5 * (1 + math.cos(math.pi * (step - 1 - config.warmup_step) / after))


def build_optimiser(parameters: Iterable[nn.Parameter], config: TrainConfig) -> torch.optim.Adam:
    """Adam with PyTorch's defaults (betas 0.9 and 0.999, epsilon 1e-8), in one kernel."""
    return torch.optim.Adam(parameters, lr=config.lr, fused=True)


def apply_gradients(optimiser: torch.optim.Optimizer, config: TrainConfig, rate: float) -> Tensor:
    """Clips the global norm, takes one step at `rate`; returns the norm before clipping."""
    parameters = [weight for group in optimiser.param_groups for weight in group["params"]]
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    # To ask would make a device wait for the host; a CPU saves a pass over all gradients.
    if norm.device.type != "cpu" or norm > config.clip:
        nn.utils.clip_grads_with_norm_(parameters, config.clip, norm)
    for group in optimiser.param_groups:
        group["lr"] = rate
    optimiser.step()
    optimiser.zero_grad()
    return norm


class WeightAverage:
    """The mean of a model's weights over the steps that were added.

    Attributes:
        count: steps added so far; with none the model's own weights count.
        weights: the mean by name, in the weights' dtype.
    """

    def __init__(self, model: nn.Module) -> None:
        self.count = 0
        self.weights = {name: torch.zeros_like(weight) for name, weight in _named(model)}

    @torch.no_grad()
    def add(self, model: nn.Module) -> None:
        """Takes in the weights as they are now."""
        self.count += 1
        for name, weight in _named(model):
            self.weights[name].lerp_(weight, 1 / self.count)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """The model carries the mean inside, and its own weights again afterwards."""
        if self.count == 0:
            yield
            return
        own = {name: weight.detach().clone() for name, weight in _named(model)}
        _copy(self.weights, model)
        try:
            yield
        finally:
            _copy(own, model)


def _named(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters()


@torch.no_grad()
def _copy(weights: dict[str, Tensor], model: nn.Module) -> None:
    for name, weight in _named(model):
        weight.copy_(weights[name])
