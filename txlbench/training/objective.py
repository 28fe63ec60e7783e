"""What a training step minimises: the summed loss of the scored positions, and auxiliary losses."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

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
