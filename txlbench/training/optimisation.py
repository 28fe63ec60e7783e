"""What a training step minimises, and the step itself.

The summed loss of the scored positions with auxiliary losses; Adam, its learning rate at every step
and clipping, as in the official scripts; the average of weights over the last part of a training.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_swa_multi_avg_fn

from txlbench.config.train import TrainConfig
from txlbench.models.interface import HiddenObserver, LanguageModel, State


@dataclass(frozen=True)
class Losses:
    """Sums over the targets of one segment of every stream, in nats.

    Attributes:
        scored: of the scored positions, which is what is reported.
        auxiliary: of what is trained on beside it; 0 without auxiliary losses.
    """

    scored: Tensor
    auxiliary: Tensor


@dataclass(frozen=True)
class Auxiliary:
    """Al-Rfou et al. 2018's auxiliary losses as they are at one step.

    Attributes:
        layers: intermediate layers, from 0, that predict the targets too.
        positions: whether positions that are not scored are trained on too.
    """

    layers: frozenset[int] = field(default_factory=frozenset)
    positions: bool = False

    @classmethod
    def at(cls, config: TrainConfig, n_layer: int, step: int) -> "Auxiliary":
        """Those of step 0, 1, ...: layer k of n (from 1) ends once k / 2n of the steps are done."""
        done = step / config.max_step
        active = (k for k in range(1, n_layer) if done < k / (2 * n_layer))
        layers = frozenset(k - 1 for k in active) if config.aux_layers else frozenset()
        return cls(layers, config.aux_positions)


def scored_loss(
    model: LanguageModel,
    tokens_BT: Tensor,
    targets_BT: Tensor,
    scored: int,
    state: State,
    auxiliary: Auxiliary | None = None,
    forward: Callable[..., Any] | None = None,
) -> tuple[Losses, State]:
    """The losses of each row's last `scored` positions, and the next state.

    With half loss those are the positions i >= tgt_len // 2; the paper does not publish how it
    coded this. The other positions get no gradient from their own targets.

    Args:
        forward: the model's forward pass, where it is compiled.
    """
    auxiliary = auxiliary or Auxiliary()
    watched: list[Tensor] = []
    read = forward or model.forward
    hidden_BTD, state = read(tokens_BT, state, _keep(watched, auxiliary))
    begin = tokens_BT.shape[1] - scored
    main = _sum(model, hidden_BTD[:, begin:], targets_BT[:, begin:])
    extra = torch.zeros_like(main)
    if auxiliary.positions and begin:
        extra = extra + _sum(model, hidden_BTD[:, :begin], targets_BT[:, :begin])
    of_memory = model.memory_loss(state)
    if of_memory is not None:
        extra = extra + of_memory * targets_BT[:, begin:].numel()
    for layer_BTD in watched:
        extra = extra + _sum(model, layer_BTD[:, begin:], targets_BT[:, begin:])
    return Losses(main, extra), state


def _sum(model: LanguageModel, hidden_BTD: Tensor, targets_BT: Tensor) -> Tensor:
    """Summed in float32 at least."""
    losses = model.losses(hidden_BTD, targets_BT)
    return losses.to(torch.promote_types(losses.dtype, torch.float32)).sum()


def _keep(watched: list[Tensor], auxiliary: Auxiliary) -> HiddenObserver | None:
    """An observer that keeps the hidden states of the layers that predict."""
    if not auxiliary.layers:
        return None

    def observe(layer: int, hidden_BTD: Tensor) -> None:
        if layer in auxiliary.layers:
            watched.append(hidden_BTD)

    return HiddenObserver(observe)


def learning_rate(config: TrainConfig, step: int) -> float:
    """The rate of step 1, 2, ..., max_step: linear warm-up to lr, then a cosine towards zero.

    The cosine runs over the steps after warm-up, so that there is no jump where they meet; the
    official PyTorch code counts it from step zero (erratum E25). Both are equal without warm-up.
    """
    if step <= config.warmup_step:
        return config.lr * step / config.warmup_step
    after = max(1, config.max_step - config.warmup_step)
    return config.lr * 0.5 * (1 + math.cos(math.pi * (step - 1 - config.warmup_step) / after))


class Adam(torch.optim.Adam):
    """PyTorch's Adam without loading its compiler, which takes a second as a run starts.

    PyTorch has these methods load it to keep them from being compiled, as nothing here is.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


def build_optimiser(parameters: Iterable[nn.Parameter], config: TrainConfig) -> Adam:
    """Adam with PyTorch's defaults (betas 0.9 and 0.999, epsilon 1e-8), in one kernel."""
    return Adam(parameters, lr=config.lr, fused=True)


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
