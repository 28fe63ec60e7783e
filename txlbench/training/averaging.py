"""Averaging of weights over the last part of a training (Polyak & Juditsky 1992; AWD-LSTM)."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


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
