"""A model whose context losses are asked for, known as far as its weights need not be loaded."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from txlbench.commands.names import find_run, is_foreign
from txlbench.config.identity import run_id
from txlbench.config.model import ModelConfig
from txlbench.config.run_config import LookBack, RunConfig
from txlbench.config.train import TrainConfig
from txlbench.data.download import data_root, file_checksum
from txlbench.errors import UserError
from txlbench.records.experiment_directory import RESULTS
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState

if TYPE_CHECKING:  # What is kept already needs no torch.
    import torch

    from txlbench.commands.load_model import LoadedModel


@dataclass(frozen=True)
class KnownModel:
    """What decides a model's context losses, and how to get at its weights.

    Attributes:
        reference: what the user called it.
        weights: fingerprint of the weights.
        losses: the directory in which its losses are kept.
        config: the model's configuration.
        look_back: tgt_len as trained, and clamp_len for distances not met in training.
        load: loads it to a device.
        run: the configuration it was trained with here; None for an imported one.
        paper: the paper's numbers of its row.
    """

    reference: str
    weights: str
    losses: Path
    config: ModelConfig
    look_back: LookBack
    load: Callable[["torch.device"], "LoadedModel"]
    run: RunConfig | None = None
    paper: Mapping[str, float | str] = field(default_factory=dict)


def known_model(reference: str, checkpoint: str, results: Path = RESULTS) -> KnownModel:
    """The model that `reference` names.

    Args:
        checkpoint: best or last; of runs only.

    Raises:
        UserError: if there is no such model, or it has no such checkpoint.
    """
    if is_foreign(reference):
        return _foreign(reference)
    run = find_run(reference, results)
    if run.state is RunState.IMPORTED:
        imported = run.read_imported()
        return _in_directory(reference, run, "best", imported.model, imported.evaluate)
    config = run.read_config()
    asked = config.evaluate.clamp_len
    clamp_len = config.model.clamp_len if asked is None else asked
    look_back = LookBack(tgt_len=config.train.tgt_len, clamp_len=clamp_len)
    known = _in_directory(reference, run, checkpoint, config.model, look_back)
    return replace(known, run=config, paper=run.read_paper())


def known_with_resets(known: KnownModel, checkpoint: str) -> KnownModel | None:
    """The same run trained with memory resets, among the runs beside it."""
    if known.run is None or known.run.train.memory_reset:
        return None
    wanted = _without_resets(known.run)
    for path in sorted(known.losses.parent.parent.glob("*/config.yaml")):
        run = RunDirectory(path.parent)
        if run.state is RunState.IMPORTED or not (run.checkpoints / f"{checkpoint}.pt").is_file():
            continue
        config = run.read_config()
        if config.train.memory_reset and _without_resets(config) == wanted:
            return known_model(str(run.path), checkpoint)
    return None


def _without_resets(run: RunConfig) -> str:
    """The id of the run that forgets nothing in training, and is the same else."""
    kept = {key: TrainConfig.ADDED[key] for key in ("memory_reset", "memory_reset_from")}
    return run_id(run.model_copy(update={"train": run.train.model_copy(update=kept)}))


def _in_directory(
    reference: str, run: RunDirectory, checkpoint: str, config: ModelConfig, look_back: LookBack
) -> KnownModel:
    """A run, or what was imported as one; its losses lie beside its weights."""
    path = run.checkpoints / f"{checkpoint}.pt"
    if not path.is_file():
        raise UserError(f"{path}: no such checkpoint", "train the run first")

    def load(device: "torch.device") -> "LoadedModel":
        from txlbench.commands.load_model import load_model

        return replace(load_model(str(run.path), device, checkpoint), reference=reference)

    return KnownModel(reference, file_checksum(path), run.losses, config, look_back, load)


def _foreign(reference: str) -> KnownModel:
    """Somebody else's weights; loaded at once, as only then they can be told from others."""
    import torch

    from txlbench.commands.load_model import load_model

    loaded = load_model(reference, torch.device("cpu"))
    digest = hashlib.sha256()
    for name, tensor in sorted(loaded.model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).contiguous().view(torch.uint8).numpy().data)

    def load(device: torch.device) -> "LoadedModel":
        return replace(loaded, model=loaded.model.to(device))

    kept = data_root() / "losses"
    return KnownModel(reference, digest.hexdigest(), kept, loaded.config, loaded.look_back, load)
