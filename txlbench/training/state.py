"""Everything that changes while a model trains, and the memory that its first step starts with.

Where a kernel or the forward pass is compiled, memory has its full size from the first step on.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, cast

import torch
from torch.optim.swa_utils import AveragedModel

from txlbench.config.base import AttentionSpan
from txlbench.config.train import TrainConfig
from txlbench.data.streams import Batch
from txlbench.models.embedding import Embedding
from txlbench.models.interface import LanguageModel, State
from txlbench.models.memory import Memory
from txlbench.models.positions.tables import cached_sinusoid
from txlbench.world import ALONE, World


def compiled_forward(model: LanguageModel, backend: str | Callable[..., Any] = "inductor") -> Any:
    """`model.forward`, compiled at its first call for each length of segment: at most two.

    Evaluation keeps to the model itself, whose forward pass stays as it is.
    """
    _mark_for_compiler()
    return torch.compile(model.forward, dynamic=False, backend=backend)


@cache
def _mark_for_compiler() -> None:
    """Says what compilation leaves out; decorators would load the compiler with every model."""
    torch.compiler.assume_constant_result(cached_sinusoid)
    by_cluster = torch.compiler.disable(Embedding.by_cluster)
    Embedding.by_cluster = by_cluster  # type: ignore[method-assign]


def has_one_shape(model: LanguageModel, train: TrainConfig) -> bool:
    """Whether something is compiled for the shapes of a step, which then should not change.

    On a CUDA device that is the kernel of attention.
    """
    return train.compile or next(model.parameters()).device.type == "cuda"


def full_size_memory(model: LanguageModel, rows: int, span: AttentionSpan) -> State:
    """An empty memory of full size, so that no step differs from the first in any shape.

    It holds zeros that are hidden from every stream (`State.reset`), and so equals an empty one.
    A recurrent state has one size anyhow; a memory that tells old states from new ones has to grow.
    """
    state = model.initial_state(rows, span)
    if not isinstance(state, Memory) or state.compressed or span.sinks:
        return state
    zeros = {
        name: memory.new_zeros(rows, span.mem_len, *memory.shape[2:])
        for name, memory in state.tensors().items()
    }
    return state.replace(zeros).reset(torch.ones(rows, dtype=torch.bool))


class BatchSource(Protocol):
    """Batches by position, so that a step number is all that a resume needs."""

    def __getitem__(self, step: int) -> Batch: ...


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

    Where processes share a run they have all of it in common but the rows of the memories.

    Attributes:
        forward: the model's forward pass in training steps, where it is compiled.
    """

    model: LanguageModel
    optimiser: torch.optim.Optimizer
    memories: list[State]
    progress: Progress = field(default_factory=Progress)
    average: AveragedModel | None = None
    forward: Callable[..., Any] | None = None

    @property
    def evaluated(self) -> LanguageModel:
        """The model that is validated and kept: of averaged weights, once there are any."""
        if self.average is None or not self.average.n_averaged:
            return self.model
        return cast("LanguageModel", self.average.module)


def empty_memories(
    model: LanguageModel, train: TrainConfig, span: AttentionSpan, world: World = ALONE
) -> list[State]:
    """One empty memory for each chunk of the batch, of the rows that this process has of it."""
    rows = train.batch_size // train.batch_chunk // world.size
    if has_one_shape(model, train):
        return [full_size_memory(model, rows, span) for _ in range(train.batch_chunk)]
    return [model.initial_state(rows, span) for _ in range(train.batch_chunk)]
