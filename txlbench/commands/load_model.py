"""Loads weights: a run's checkpoint, or somebody else's as `hf:DIR`, `torch:FILE`, `tf:PREFIX`."""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from txlbench.config.measurements import Settings
from txlbench.config.run_config import EvaluateConfig, ImportedConfig
from txlbench.models.convert.official import Converted
from txlbench.models.factory import build_model, check_weights
from txlbench.models.interface import LanguageModel
from txlbench.training.checkpoint import evaluation_weights, load


def load_checkpoint(
    path: Path, config: Settings, vocabulary_size: int, device: torch.device
) -> LanguageModel:
    """The model of a run's checkpoint: with averaged weights if averaging had begun."""
    weights = evaluation_weights(load(path))
    return build(path, config, vocabulary_size, weights, device)


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def foreign_reader(source: str, reversed_clusters: bool = False) -> Callable[[], Converted]:
    """What reads the weights of `source`.

    Args:
        reversed_clusters: the tail clusters' columns of a Hugging Face folder are in the order of
            the official PyTorch code, as early conversions left them; nothing in it tells.
    """
    kind, _, place = source.partition(":")
    if kind == "hf":
        from txlbench.models.convert.hf import read_hf

        return partial(read_hf, Path(place), reversed_clusters)
    if kind == "torch":
        from txlbench.models.convert.torch_file import read_torch

        return partial(read_torch, Path(place))
    from txlbench.models.convert.tf import read_tf

    return partial(read_tf, Path(place))


def imported_config(source: str, converted: Converted) -> ImportedConfig:
    """What an imported run's `config.yaml` says."""
    evaluate = EvaluateConfig(tgt_len=converted.tgt_len, mem_len=converted.mem_len or None)
    return ImportedConfig(
        source=source,
        model=converted.config,
        vocabulary_size=converted.vocabulary_size,
        evaluate=evaluate,
    )


def build(
    path: Path, config: Settings, size: int, weights: Any, device: torch.device
) -> LanguageModel:
    """The model with these weights, whose shapes are checked before memory is taken."""
    check_weights(path, config.model, size, weights)
    model = build_model(config.model, size)
    model.load_state_dict(weights)
    return model.to(device).eval()
