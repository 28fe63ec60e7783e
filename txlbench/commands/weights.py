"""`import` and `export`: brings somebody else's weights in as a run directory, and ours out."""

from pathlib import Path

import torch

from txlbench.commands.load_model import foreign_reader, imported_config
from txlbench.commands.model_ref import LoadedModel, resolve
from txlbench.config.measurements import segments_of
from txlbench.errors import UserError
from txlbench.models.convert.hf import write_hf
from txlbench.models.convert.official import Converted
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.training.checkpoint import save_model


def import_model(
    source: str, out: Path, reversed_clusters: bool = False
) -> tuple[RunDirectory, Converted]:
    """Writes the weights of `source` as an ordinary run directory, state imported.

    Raises:
        UserError: if `source` is not hf:DIR, torch:FILE or tf:PREFIX, or `out` is in use.
    """
    if source.partition(":")[0] not in ("hf", "torch", "tf"):
        raise UserError(f"{source}: not a source of weights", "hf:DIR, torch:FILE or tf:PREFIX")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists already", "choose another --out, or delete it")
    converted = foreign_reader(source, reversed_clusters)()
    run = RunDirectory(out)
    save_model(run.checkpoints / "best.pt", converted.weights)
    run.write_imported(imported_config(source, converted))
    if converted.tokens is not None:
        run.write_tokens(converted.tokens)
    run.set_state(RunState.IMPORTED)
    return run, converted


def export_model(reference: str, target: str) -> Path:
    """Writes a model as a Hugging Face folder; `target` is hf:DIR."""
    kind, _, place = target.partition(":")
    if kind != "hf" or not place:
        raise UserError(f"--to {target}: not a form weights go out in", "hf:DIR")
    if Path(place).exists() and not Path(place).is_dir():
        raise UserError(f"--to {target}: {place} is a file", "give a folder to make")
    write_hf(_converted(resolve(reference).load(torch.device("cpu"))), Path(place))
    return Path(place)


def _converted(loaded: LoadedModel) -> Converted:
    settings, known = loaded.settings, loaded.ref.capabilities
    segments, weights = segments_of(settings), dict(loaded.model.state_dict())
    return Converted(
        settings.model, known.vocabulary_size, weights, segments.memory, segments.tgt_len,
        known.tokens,
    )  # fmt: skip
