"""What every reader of foreign weights returns: configuration, weights and what else is known."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from txlbench.config.model import ModelConfig
from txlbench.errors import UserError


@dataclass(frozen=True)
class SourceView:
    """How the source looks back, as far as it says so; a runtime choice, not part of the weights.

    Attributes:
        mem_len: cached states of earlier tokens.
        tgt_len: tokens of a segment.
        clamp_len: distances beyond it count as clamp_len; None for no limit.
        same_length: every query sees exactly mem_len keys, itself included.
    """

    mem_len: int | None = None
    tgt_len: int | None = None
    clamp_len: int | None = None
    same_length: bool = False


@dataclass(frozen=True)
class Converted:
    """A model as `build_model(config, vocabulary_size)` and `load_state_dict(weights)` make it.

    Attributes:
        weights: float32 tensors by the exact names of the model's state dict.
        tokens: the vocabulary in order of id, where the source has one that is no pickle.
        notes: what the source does not say and was taken for granted, one phrase each.
    """

    config: ModelConfig
    vocabulary_size: int
    weights: dict[str, Tensor]
    view: SourceView = field(default_factory=SourceView)
    tokens: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


def model_config(path: Path, settings: Mapping[str, Any]) -> ModelConfig:
    """The configuration with these settings; UserError naming file and key if it is none."""
    try:
        return ModelConfig.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "configuration"
        raise UserError(
            f"{path}: {key}: {first['msg']} (found {first['input']!r})", "mend the file"
        ) from error
