"""Training steps of which something is compiled: a kernel, or the whole forward pass."""

from collections.abc import Callable
from typing import Any

import torch

from txlbench.config.train import TrainConfig
from txlbench.models.interface import LanguageModel, State, View
from txlbench.models.memory import Memory


def compiled_forward(model: LanguageModel, backend: str | Callable[..., Any] = "inductor") -> Any:
    """`model.forward`, compiled at its first call for each length of segment: at most two.

    Evaluation keeps to the model itself, whose forward pass stays as it is.
    """
    return torch.compile(model.forward, dynamic=False, backend=backend)


def has_one_shape(model: LanguageModel, train: TrainConfig) -> bool:
    """Whether something is compiled for the shapes of a step, which then should not change.

    On a CUDA device that is the kernel of attention.
    """
    return train.compile or next(model.parameters()).device.type == "cuda"


def hidden_memory(model: LanguageModel, rows: int, view: View, tgt_len: int) -> State:
    """An empty memory of full size, so that no step differs from the first in any shape.

    It is full of zeros that no stream knows (`State.forget`), and so equals a memory of no states.
    Like the memory that a segment of `tgt_len` leaves it is a part of what was attended to.
    A recurrent state has one size anyhow.
    """
    state = model.initial_state(rows, view)
    if not isinstance(state, Memory):
        return state
    zeros = {
        name: memory.new_zeros(rows, view.mem_len + tgt_len, *memory.shape[2:])[:, : view.mem_len]
        for name, memory in state.tensors().items()
    }
    return state.replace(zeros).forget(torch.ones(rows, dtype=torch.bool))
