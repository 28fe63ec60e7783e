"""Whether weights are those of a configuration, told by shapes before any memory is taken."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from txlbench.config.model import ModelConfig
from txlbench.errors import UserError
from txlbench.models.factory import build_model

MOST_LAYERS = 10_000
"""More would take long to lay out, and no file holds their weights."""


def skeleton(path: Path, config: ModelConfig, vocabulary_size: int) -> dict[str, Tensor]:
    """The model's state dict with shapes and no content.

    Raises:
        UserError: naming `path`, for sizes that no model can have.
    """
    if config.n_layer > MOST_LAYERS:
        raise UserError(f"{path}: n_layer: {config.n_layer} found", f"at most {MOST_LAYERS}")
    try:
        with torch.device("meta"):
            return build_model(config, vocabulary_size).state_dict()
    except (RuntimeError, OverflowError, MemoryError, TypeError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"{path}: sizes that no model can have ({reason})", "mend them") from error


def check_weights(path: Path, config: ModelConfig, vocabulary_size: int, weights: Any) -> None:
    """Refuses (UserError naming `path`) what is not the model's state dict."""
    expected = skeleton(path, config, vocabulary_size)
    if not isinstance(weights, Mapping) or weights.keys() != expected.keys():
        raise UserError(f"{path}: its weights are not those of the run's model", "restore the file")
    for name, tensor in expected.items():
        found = weights[name]
        if not isinstance(found, Tensor) or found.shape != tensor.shape:
            shape = list(getattr(found, "shape", ()))
            raise UserError(
                f"{path}: {name}: shape {shape} found",
                f"the run's configuration asks for {list(tensor.shape)}",
            )
        if found.dtype != tensor.dtype:
            raise UserError(f"{path}: {name}: {found.dtype} found", f"it must be {tensor.dtype}")
