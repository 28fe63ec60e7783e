"""Bringing somebody else's weights in as a run directory, and ours out.

From what a user calls a model to the model itself, in evaluation mode.

A run directory; `EXPERIMENT/RUN-ID` or `EXPERIMENT/LABEL` under results/; `runs:/ID` of MLflow;
`hf:DIR`, `torch:FILE` or `tf:PREFIX` of somebody else's weights.

A model that was never trained: a row of an experiment file, with the weights it begins with.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from txlbench.commands.names import find_run, is_foreign
from txlbench.config.catalogue import CORPORA
from txlbench.config.grid import Line, load_experiment
from txlbench.config.model import ModelConfig
from txlbench.config.run_config import CorpusConfig, ImportedConfig, LookBack, RunConfig
from txlbench.data.prepare import prepare
from txlbench.errors import UserError, suggestion
from txlbench.models.convert.hf import write_hf
from txlbench.models.convert.official import Converted, SourceView
from txlbench.models.factory import build_model, check_weights
from txlbench.models.interface import LanguageModel
from txlbench.records.experiment_directory import RESULTS
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.training.checkpoint import load, save_model


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to be measured, and what is known of it.

    Attributes:
        reference: what the user called it.
        vocabulary_size: token types it predicts.
        look_back: how it evaluates unless told otherwise.
        recurrence: whether memory is carried from segment to segment.
        run: the configuration it was trained with here; None for an imported one.
        tokens: its vocabulary in order of id, where it brought one along.
    """

    reference: str
    model: LanguageModel
    config: ModelConfig
    vocabulary_size: int
    look_back: LookBack
    recurrence: bool = True
    run: RunConfig | None = None
    tokens: tuple[str, ...] | None = None


def load_model(
    reference: str, device: torch.device, checkpoint: str = "best", results: Path = RESULTS
) -> LoadedModel:
    """The model that `reference` names, with its weights on `device`.

    Args:
        checkpoint: best or last; of runs only.

    Raises:
        UserError: if nothing, or more than one thing, goes by that name.
    """
    reader = foreign_reader(reference)
    if reader is not None:
        return _from_converted(reference, reader(), device)
    run = find_run(reference, results)
    if run.state is RunState.IMPORTED:
        return _from_imported(reference, run, device)
    return _from_run(reference, run, device, checkpoint)


def foreign_reader(
    reference: str, reversed_clusters: bool = False
) -> Callable[[], Converted] | None:
    """What reads somebody else's weights; None if `reference` has no such prefix.

    Args:
        reversed_clusters: the tail clusters' columns of a Hugging Face folder are in the order of
            the official PyTorch code, as early conversions left them; nothing in it tells.
    """
    if not is_foreign(reference):
        return None
    kind, _, place = reference.partition(":")

    def read() -> Converted:
        if kind == "hf":
            from txlbench.models.convert.hf import read_hf

            return read_hf(Path(place), reversed_clusters)
        if kind == "torch":
            from txlbench.models.convert.torch_file import read_torch

            return read_torch(Path(place))
        from txlbench.models.convert.tf import read_tf

        return read_tf(Path(place))

    return read


def _from_run(
    reference: str, run: RunDirectory, device: torch.device, checkpoint: str
) -> LoadedModel:
    config = run.read_config()
    path = run.checkpoints / f"{checkpoint}.pt"
    weights = load(path).get("model")
    size = run.read_facts().get("corpus", {}).get("vocabulary_size")
    if size is None:
        raise UserError(f"{run.path / 'facts.json'}: no vocabulary_size", "restore the file")
    look_back = LookBack(
        tgt_len=config.train.tgt_len,
        mem_len=config.train.memory,
        clamp_len=config.model.clamp_len,
        same_length=config.model.same_length,
    )
    return LoadedModel(
        reference,
        _build(path, config.model, size, weights, device),
        config.model,
        size,
        look_back,
        config.train.recurrence,
        config,
        run.read_tokens(),
    )


def _from_imported(reference: str, run: RunDirectory, device: torch.device) -> LoadedModel:
    config = run.read_imported()
    path = run.checkpoints / "best.pt"
    model = _build(path, config.model, config.vocabulary_size, load(path).get("model"), device)
    return LoadedModel(
        reference,
        model,
        config.model,
        config.vocabulary_size,
        config.evaluate,
        tokens=run.read_tokens(),
    )


def _from_converted(reference: str, converted: Converted, device: torch.device) -> LoadedModel:
    config = imported_config(reference, converted)
    weights = converted.weights
    model = _build(Path(reference), config.model, config.vocabulary_size, weights, device)
    return LoadedModel(
        reference,
        model,
        config.model,
        config.vocabulary_size,
        config.evaluate,
        tokens=converted.tokens,
    )


def imported_config(reference: str, converted: Converted) -> ImportedConfig:
    """What an imported run's `config.yaml` says."""
    view = converted.view
    given = {
        name: value
        for name, value in (("tgt_len", view.tgt_len), ("mem_len", view.mem_len))
        if value is not None
    }
    look_back = LookBack(clamp_len=view.clamp_len, same_length=view.same_length, **given)
    return ImportedConfig(
        source=reference,
        model=converted.config,
        vocabulary_size=converted.vocabulary_size,
        evaluate=look_back,
    )


def _build(
    path: Path, config: ModelConfig, size: int, weights: Any, device: torch.device
) -> LanguageModel:
    """The model with these weights, whose shapes are checked before memory is taken."""
    check_weights(path, config, size, weights)
    model = build_model(config, size)
    model.load_state_dict(weights)
    return model.to(device).eval()


SUFFIXES = (".yaml", ".yml")


def is_fresh(reference: str) -> bool:
    """Whether `reference` is FILE.yaml:LABEL, or FILE.yaml."""
    return reference.partition(":")[0].endswith(SUFFIXES)


def fresh_model(
    reference: str, device: torch.device
) -> tuple[LoadedModel, Mapping[str, float | str]]:
    """The row's model with random weights, in evaluation mode, and the paper's numbers for it.

    Raises:
        UserError: if there is no such row.
    """
    path, _, label = reference.partition(":")
    line = _line(reference, label, load_experiment(Path(path)).lines)
    config = line.configs[0]
    size = vocabulary_size(config.corpus)
    torch.manual_seed(config.seed)
    model = build_model(config.model, size).to(device).eval()
    look_back = LookBack(tgt_len=config.train.tgt_len, mem_len=config.train.memory)
    loaded = LoadedModel(
        reference, model, config.model, size, look_back, config.train.recurrence, config
    )
    return loaded, line.paper


def _line(reference: str, label: str, lines: tuple[Line, ...]) -> Line:
    known = {line.label: line for line in lines}
    if label in known:
        return known[label]
    if not label and len(lines) == 1:
        return lines[0]
    raise UserError(f"{reference}: no such row", suggestion(label, list(known)))


def vocabulary_size(corpus: CorpusConfig) -> int:
    """Token types of a corpus; it is prepared only where nothing else tells."""
    known = CORPORA[corpus.name].vocabulary_size if corpus.path is None else None
    return known or len(prepare(corpus).vocabulary)


def import_model(
    source: str, out: Path, reversed_clusters: bool = False
) -> tuple[RunDirectory, Converted]:
    """Writes the weights of `source` as an ordinary run directory, state imported.

    Raises:
        UserError: if `source` is not hf:DIR, torch:FILE or tf:PREFIX, or `out` is in use.
    """
    reader = foreign_reader(source, reversed_clusters)
    if reader is None:
        raise UserError(f"{source}: not a source of weights", "hf:DIR, torch:FILE or tf:PREFIX")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out}: exists already", "choose another --out, or delete it")
    converted = reader()
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
    loaded = load_model(reference, torch.device("cpu"))
    write_hf(_converted(loaded), Path(place))
    return Path(place)


def _converted(loaded: LoadedModel) -> Converted:
    look_back = loaded.look_back
    view = SourceView(
        look_back.mem_len, look_back.tgt_len, look_back.clamp_len, look_back.same_length
    )
    weights = dict(loaded.model.state_dict())
    return Converted(loaded.config, loaded.vocabulary_size, weights, view, loaded.tokens)
