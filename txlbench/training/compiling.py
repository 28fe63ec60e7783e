"""Training steps whose forward pass is compiled as a whole (`train.compile`)."""

from collections.abc import Callable
from typing import Any

import torch

from txlbench.models.interface import LanguageModel, State, View


def compiled_forward(model: LanguageModel, backend: str | Callable[..., Any] = "inductor") -> Any:
    """`model.forward`, compiled at its first call for each length of segment: at most two.

    Evaluation keeps to the model itself, whose forward pass stays as it is.
    """
    return torch.compile(model.forward, dynamic=False, backend=backend)


def hidden_memory(model: LanguageModel, rows: int, view: View, tgt_len: int) -> State:
    """An empty memory of full size, so that no step differs from the first in any shape.

    It is full of zeros that no stream knows (`State.forget`), and so equals a memory of no states.
    Like the memory that a segment of `tgt_len` leaves it is a part of what was attended to.
    """
    state = model.initial_state(rows, view)
    zeros = {
        name: memory.new_zeros(rows, view.mem_len + tgt_len, *memory.shape[2:])[:, : view.mem_len]
        for name, memory in state.tensors().items()
    }
    return state.replace(zeros).forget(torch.ones(rows, dtype=torch.bool))
