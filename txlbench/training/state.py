"""Everything that changes while a model trains, in one object."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from txlbench.config.run import RunConfig
from txlbench.config.train import TrainConfig
from txlbench.models.interface import LanguageModel, State, View
from txlbench.training.averaging import WeightAverage
from txlbench.training.compiling import has_one_shape, hidden_memory


@dataclass
class Progress:
    """How far a training has come; plain numbers, written to checkpoints as they are.

    Attributes:
        step: optimiser steps done; also the data position.
        tokens: tokens read, segments' overlaps included.
        targets: predictions trained on.
        best_step, best_loss: of the lowest validation loss so far, in nats.
        loss_sum, loss_targets, norm_sum, norm_steps: since the last log line.
    """

    step: int = 0
    tokens: int = 0
    targets: int = 0
    best_step: int | None = None
    best_loss: float | None = None
    last_loss: float | None = None
    loss_sum: float = 0.0
    loss_targets: int = 0
    norm_sum: float = 0.0
    norm_steps: int = 0


@dataclass
class TrainingState:
    """Model, optimiser, the memory of each chunk of the batch, progress, averaged weights.

    Attributes:
        forward: the model's forward pass in training steps, where it is compiled.
    """

    model: LanguageModel
    optimiser: torch.optim.Optimizer
    memories: list[State]
    progress: Progress = field(default_factory=Progress)
    average: WeightAverage | None = None
    forward: Callable[..., Any] | None = None

    def evaluation_weights(self) -> AbstractContextManager[None]:
        """Inside, the model carries the weights that are validated and kept."""
        return nullcontext() if self.average is None else self.average.applied(self.model)


def training_view(config: RunConfig) -> View:
    """How the model looks back in training: as configured, half loss overlapping segments."""
    train, model = config.train, config.model
    return View(train.memory, model.clamp_len, model.same_length, train.stride)


def empty_memories(model: LanguageModel, train: TrainConfig, view: View) -> list[State]:
    """One empty memory for each chunk of the batch."""
    rows = train.batch_size // train.batch_chunk
    if has_one_shape(model, train):
        return [hidden_memory(model, rows, view, train.tgt_len) for _ in range(train.batch_chunk)]
    return [model.initial_state(rows, view) for _ in range(train.batch_chunk)]
