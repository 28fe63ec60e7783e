"""Adam, its learning rate at every step, and clipping, as in the official scripts; the average of
weights over the last part of a training."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_swa_multi_avg_fn

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


def weight_average(model: nn.Module) -> AveragedModel:
    """The mean of a model's weights over the steps that are added by `update_parameters`.

    (Polyak & Juditsky 1992; in language models: AWD-LSTM.)
    """
    return AveragedModel(model, multi_avg_fn=get_swa_multi_avg_fn())
