"""Checkpoints: tensors and plain data only, whole or absent, loaded without executing code."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from txlbench import seeding
from txlbench.errors import UserError
from txlbench.files import write_atomically
from txlbench.training.state import Progress, TrainingState

SCHEMA = "txlbench.checkpoint/1"


def save_last(path: Path, state: TrainingState, metrics_bytes: int) -> None:
    """Writes all that continues the training exactly: state, random sources, length of the log."""
    content = {
        "schema": SCHEMA,
        "model": state.model.state_dict(),
        "optimiser": state.optimiser.state_dict(),
        "memories": [dict(memory.tensors()) for memory in state.memories],
        "progress": asdict(state.progress),
        "random": seeding.capture(),
        "average": None if state.average is None else vars(state.average),
        "metrics_bytes": metrics_bytes,
    }
    write_atomically(path, lambda file: torch.save(content, file))


def save_weights(path: Path, state: TrainingState) -> None:
    """Writes the weights with their step and validation loss, for evaluation."""
    with state.evaluation_weights():
        content = {
            "schema": SCHEMA,
            "model": state.model.state_dict(),
            "progress": asdict(state.progress),
        }
        write_atomically(path, lambda file: torch.save(content, file))


def save_model(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Writes the weights of a model that was not trained here, as a best checkpoint."""
    content = {"schema": SCHEMA, "model": dict(weights), "progress": asdict(Progress())}
    write_atomically(path, lambda file: torch.save(content, file))


def load(path: Path) -> dict[str, Any]:
    """Reads a checkpoint to the CPU; UserError naming the file if it is missing, torn or foreign.

    Random states have to be there, and weights are copied to where the model is.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such checkpoint", "train the run first") from error
    except Exception as error:  # of many kinds, from damaged bytes
        raise _broken(path) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise _broken(path)
    return content


def restore(content: dict[str, Any], state: TrainingState) -> int:
    """Puts `state` and the random sources where `save_last` found them.

    Returns:
        The length in bytes that the metrics file had.
    """
    state.model.load_state_dict(content["model"])
    state.optimiser.load_state_dict(content["optimiser"])
    device = next(state.model.parameters()).device
    state.memories = [
        memory.replace({name: tensor.to(device) for name, tensor in tensors.items()})
        for memory, tensors in zip(state.memories, content["memories"], strict=True)
    ]
    state.progress = Progress(**content["progress"])
    if state.average is not None:
        state.average.count = content["average"]["count"]
        for name, mean in content["average"]["weights"].items():
            state.average.weights[name].copy_(mean)
    seeding.restore(content["random"])
    return int(content["metrics_bytes"])


def _broken(path: Path) -> UserError:
    return UserError(f"{path}: not a whole txlbench checkpoint", "delete it to start again")
