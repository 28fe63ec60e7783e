"""A model that was never trained: a row of an experiment file, with the weights it begins with."""

from collections.abc import Mapping
from pathlib import Path

import torch

from txlbench.config.catalogue import CORPORA
from txlbench.config.corpus import CorpusConfig
from txlbench.config.expansion import Line, load_experiment
from txlbench.config.imported import LookBack
from txlbench.data.preparation import prepare
from txlbench.errors import UserError
from txlbench.execution.references import LoadedModel
from txlbench.models.factory import build_model
from txlbench.registry import suggestion

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
