"""The invariants on every model of an experiment file, made small; no corpus is needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from txlbench.config.catalogue import ENCODINGS
from txlbench.config.expansion import Experiment, load_experiment
from txlbench.config.identity import fingerprint
from txlbench.config.run import RunConfig
from txlbench.errors import UserError
from txlbench.evaluation import invariants
from txlbench.evaluation.invariants import ROUNDING, TOLERANCE, strengthen
from txlbench.execution.resuming_check import resumed
from txlbench.execution.small import TGT_LEN, VOCABULARY, small
from txlbench.models.factory import build_model
from txlbench.models.interface import LanguageModel, View
from txlbench.training.state import training_view

INVARIANTS: Mapping[str, float] = {
    "causality": ROUNDING,
    "memory purity": 0.0,
    "segments": TOLERANCE,
    "batches": TOLERANCE,
    "softmax": TOLERANCE,
    "resumed": 0.0,
}
"""Name -> the largest difference that is rounding."""
CUTS = (TGT_LEN, TGT_LEN, 3)
"""Two whole segments and a short one."""


@dataclass(frozen=True)
class Checked:
    """A model configuration held against the invariants.

    Attributes:
        labels: rows that have it, with their experiment where there are several.
        differences: by invariant; None where it is not claimed of this kind of model.
        cuts: how much losses depend on where segments are cut with the row's own memory, which
            is no fault.
    """

    labels: tuple[str, ...]
    differences: Mapping[str, float | None]
    cuts: float

    @property
    def broken(self) -> tuple[str, ...]:
        """The invariants that do not hold."""
        return tuple(
            name
            for name, found in self.differences.items()
            if found is not None and not found <= INVARIANTS[name]
        )


def check_experiments(specs: Sequence[Path]) -> Iterator[Checked]:
    """Checks each distinct model of the experiment files; of every encoding, without any."""
    torch.set_num_threads(1)  # sizes are too small to share
    labels: dict[str, list[str]] = {}
    configs: dict[str, RunConfig] = {}
    for label, config in _rows(specs):
        key = fingerprint(config.model_dump(mode="json"))
        labels.setdefault(key, []).append(label)
        configs[key] = config
    for key, config in configs.items():
        yield Checked(tuple(dict.fromkeys(labels[key])), *check(config))


def check(config: RunConfig) -> tuple[dict[str, float | None], float]:
    """Differences by invariant, and the dependence on cuts, of a small configuration."""
    torch.manual_seed(1)
    model = build_model(config.model, VOCABULARY).double().eval()
    strengthen(model)
    tokens = torch.randint(VOCABULARY, (3, sum(CUTS) + 1))
    view = training_view(config)
    found: dict[str, float | None] = {
        name: _measured(config, name, measure) for name, measure in _measures(model, tokens, view)
    }
    found["resumed"] = _measured(config, "resumed", lambda: resumed(config))
    cuts = _measured(
        config,
        "cuts",
        lambda: invariants.cut_dependence(
            model, tokens, [TGT_LEN, TGT_LEN], [TGT_LEN // 2] * 4, view
        ),
    )
    return {name: found[name] for name in INVARIANTS}, cuts or 0.0


def _measures(
    model: LanguageModel, tokens: torch.Tensor, view: View
) -> Iterator[tuple[str, Callable[[], float]]]:
    yield (
        "causality",
        lambda: max(
            invariants.causality(model, tokens, CUTS, each, VOCABULARY)
            for each in (view, View(mem_len=0))
        ),
    )
    yield "memory purity", partial(invariants.memory_purity, model, tokens, CUTS, view)
    yield "segments", partial(invariants.segments, model, tokens, CUTS)
    yield "batches", partial(invariants.batches, model, tokens, CUTS, view)
    yield "softmax", partial(invariants.dense_softmax, model, tokens[:, : TGT_LEN + 1], view)
    model.zero_grad()


def _measured(config: RunConfig, name: str, measure: Callable[[], float]) -> float | None:
    """A difference; None where the invariant is not claimed, infinity where a model refuses."""
    if name == "segments" and not config.model.has_coherent_memory:
        return None  # positions start anew at every segment
    return measure()


def _rows(specs: Sequence[Path]) -> Iterator[tuple[str, RunConfig]]:
    """(label, small configuration) of every row."""
    if not specs:
        for name in ENCODINGS.names():
            for recurrence in (True, False):
                raw = {
                    "corpus": "enwiki-sample",
                    "model": {"encoding": name},
                    "train": {"recurrence": recurrence},
                }
                yield (
                    f"{name}, {'with' if recurrence else 'without'} recurrence",
                    small(RunConfig.model_validate(raw)),
                )
        return
    for path in specs:
        experiment: Experiment = load_experiment(path)
        for line in experiment.lines:
            label = line.label if len(specs) == 1 else f"{experiment.name}/{line.label}"
            yield label, small(line.configs[0])


def spec_files(given: Sequence[Path]) -> list[Path]:
    """The files to check: those given, with the files of folders among them.

    Raises:
        UserError: for a folder without experiment files.
    """
    found: list[Path] = []
    for path in given:
        files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
        if not files:
            raise UserError(f"{path}: no experiment file", "give one, or a folder of *.yaml")
        found += files
    return found
