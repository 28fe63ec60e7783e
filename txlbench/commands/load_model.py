"""Loads a run's checkpoint, and brings weights of other programs in and ours out.

Others' weights are `hf:DIR`, `torch:FILE` or `tf:PREFIX`; ours go out as a Hugging Face folder.
"""

import hashlib
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from txlbench.config.measurements import Settings, segments_of
from txlbench.config.run_config import EvaluateConfig, ImportedConfig
from txlbench.errors import UserError
from txlbench.models.convert.hf import to_json, write_hf
from txlbench.models.convert.official import Converted
from txlbench.models.factory import build_model, check_weights
from txlbench.models.interface import LanguageModel
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.training.checkpoint import evaluation_weights, load, save_model

if TYPE_CHECKING:
    from txlbench.commands.model_ref import LoadedModel, ModelRef


def load_checkpoint(
    path: Path, config: Settings, vocabulary_size: int, device: torch.device
) -> LanguageModel:
    """The model of a run's checkpoint: with averaged weights if averaging had begun."""
    weights = evaluation_weights(load(path))
    return build(path, config, vocabulary_size, weights, device)


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 of the names, types, shapes and values of weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def foreign_reader(source: str, reversed_clusters: bool = False) -> Callable[[], Converted]:
    """A function that reads the weights of `source`.

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
    """The content of an imported run's `config.yaml`."""
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


def import_model(
    source: str, out: Path, reversed_clusters: bool = False, force: bool = False
) -> tuple[RunDirectory, Converted]:
    """Writes the weights of `source` as an ordinary run directory, state imported.

    Args:
        force: an earlier import at `out` is replaced; anything else never is.

    Raises:
        UserError: if `source` is not hf:DIR, torch:FILE or tf:PREFIX, or `out` is in use.
    """
    if source.partition(":")[0] not in ("hf", "torch", "tf"):
        raise UserError(f"{source}: not a source of weights", "hf:DIR, torch:FILE or tf:PREFIX")
    run = RunDirectory(out)
    _refuse_occupied(out, force, is_ours=run.state is RunState.IMPORTED)
    converted = foreign_reader(source, reversed_clusters)()
    shutil.rmtree(out, ignore_errors=True)
    save_model(run.checkpoints / "best.pt", converted.weights)
    run.write_imported(imported_config(source, converted))
    if converted.tokens is not None:
        run.write_tokens(converted.tokens)
    run.set_state(RunState.IMPORTED)
    return run, converted


def _refuse_occupied(place: Path, force: bool, is_ours: bool) -> None:
    """UserError where something is at `place`, unless `force` may replace it."""
    if not place.exists() or (place.is_dir() and not any(place.iterdir())) or (force and is_ours):
        return
    remedy = "choose another place" + (", or give --force" if is_ours else "")
    raise UserError(f"{place}: exists already", remedy)


def export_model(ref: "ModelRef", target: str, force: bool = False) -> Path:
    """Writes a model as a Hugging Face folder; `target` is hf:DIR.

    Args:
        force: an earlier export is replaced; anything else never is.
    """
    kind, _, place = target.partition(":")
    if kind != "hf" or not place:
        raise UserError(f"--to {target}: not a form weights go out in", "hf:DIR")
    if Path(place).exists() and not Path(place).is_dir():
        raise UserError(f"--to {target}: {place} is a file", "give a folder to make")
    _refuse_occupied(Path(place), force, is_ours=(Path(place) / "model.safetensors").is_file())
    converted = _converted(ref.load(torch.device("cpu")))
    to_json(converted)  # refuses what cannot be written before an earlier export is removed
    if force:
        shutil.rmtree(place, ignore_errors=True)
    write_hf(converted, Path(place))
    return Path(place)


def _converted(loaded: "LoadedModel") -> Converted:
    settings, known = loaded.settings, loaded.ref.capabilities
    segments, weights = segments_of(settings), dict(loaded.model.state_dict())
    return Converted(
        settings.model, known.vocabulary_size, weights, segments.memory, segments.tgt_len,
        known.tokens,
    )  # fmt: skip
