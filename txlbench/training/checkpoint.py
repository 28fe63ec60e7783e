"""Checkpoints: tensors and plain data only, whole or absent, loaded without executing code."""

import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

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
        "metrics_bytes": metrics_bytes,
    }
    write_atomically(path, lambda file: torch.save(content, file))


def save_weights(path: Path, state: TrainingState) -> None:
    """Writes the weights with their step and validation loss, for evaluation."""
    content = {
        "schema": SCHEMA,
        "model": state.model.state_dict(),
        "progress": asdict(state.progress),
    }
    write_atomically(path, lambda file: torch.save(content, file))


def load(path: Path, device: torch.device) -> dict[str, Any]:
    """Reads a checkpoint; UserError naming the file if it is missing, torn or foreign."""
    try:
        content = torch.load(path, map_location=device, weights_only=True)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such checkpoint", "train the run first") from error
    except (RuntimeError, OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise _broken(path) from error
    except Exception as error:
        # torch raises pickle.UnpicklingError for what weights_only refuses.
        if type(error).__name__ == "UnpicklingError":
            raise _broken(path) from error
        raise
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
    state.memories = [
        memory.replace(tensors)
        for memory, tensors in zip(state.memories, content["memories"], strict=True)
    ]
    state.progress = Progress(**content["progress"])
    seeding.restore(content["random"])
    return int(content["metrics_bytes"])


def _broken(path: Path) -> UserError:
    return UserError(f"{path}: not a whole txlbench checkpoint", "delete it to start again")
