"""`check`: the invariants on every model of an experiment file, at sizes that take no time.

Kind, encoding and flags of each model stay, and no corpus is needed. A training that is stopped
and resumed from its checkpoint is compared with one that is not.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from txlbench.config.base import AttentionSpan
from txlbench.config.catalogue import ENCODINGS, EncodingEntry
from txlbench.config.grid import load_experiment
from txlbench.config.identity import fingerprint
from txlbench.config.kinds import KINDS, KindEntry
from txlbench.config.loading import Raw
from txlbench.config.measurements import training_span
from txlbench.config.plugins import load_plugin, naming_plugin, read_plugin
from txlbench.config.run_config import RunConfig
from txlbench.data.streams import Streams
from txlbench.errors import UserError
from txlbench.evaluation import invariants
from txlbench.evaluation.counterexamples import Counterexample, counterexamples
from txlbench.evaluation.invariants import ROUNDING, TOLERANCE, strengthen
from txlbench.models.factory import build_model
from txlbench.seeding import seed_everything
from txlbench.training import checkpoint
from txlbench.training.loop import Hooks, Settings, train
from txlbench.training.optimisation import build_optimiser, weight_average
from txlbench.training.state import TrainingState, empty_memories

TGT_LEN = 6
DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
"""What architectures of transformers call the number of their layers."""
VOCABULARY = 17
STEPS = 6


def small(config: RunConfig) -> RunConfig:
    """`config` with a few dimensions, layers and tokens; what decides how it computes stays."""
    raw = config.model_dump(mode="json")
    model, train = _model(raw["model"]), _shrunk_train(raw["train"], config)
    corpus = {"name": "synthetic", "path": "none"}
    return RunConfig.model_validate({"corpus": corpus, "model": model, "train": train, "seed": 1})


def _model(raw: Raw) -> Raw:
    """Widths follow from the clusters: the last of them keeps at least one dimension."""
    if raw["kind"] == "hf":  # by its own keys; sizes have to fit each other in its own ways
        depth = {key: min(raw["config"][key], 4) for key in DEPTHS if key in raw["config"]}
        return {
            **raw,
            "config": {**raw["config"], **({} if "layer_types" in raw["config"] else depth)},
        }
    tails = min(len(raw["cutoffs"]), 4)
    d_embed = max(8, raw["div_val"] ** tails)
    ties = raw["tie_projs"][: tails + 1]
    projected = raw["d_embed"] != raw["d_model"]
    sizes = {
        "n_layer": min(raw["n_layer"], 2),
        "d_model": 2 * d_embed if projected else d_embed,
        "d_embed": d_embed,
        "n_head": min(raw["n_head"], 2),
        "d_head": 5,
        "d_inner": 12,
        "cutoffs": [4 + 3 * index for index in range(tails)],
        "tie_projs": ties,
        "clamp_len": None if raw["clamp_len"] is None else min(raw["clamp_len"], TGT_LEN),
        "max_distance": None,
    }
    return {**raw, **sizes}


def _shrunk_train(raw: Raw, config: RunConfig) -> Raw:
    train = config.train
    memory = max(1, min(2 * TGT_LEN, round(TGT_LEN * train.memory / train.tgt_len)))
    sizes = {
        "tgt_len": TGT_LEN,
        "mem_len": memory if train.recurrence else 0,
        "batch_size": 4,
        "batch_chunk": min(train.batch_chunk, 2),
        "max_step": STEPS,
        "warmup_step": min(train.warmup_step, 2),
        "eval_interval": STEPS,
        "log_interval": 1,
        "lr": 1e-3,
        "precision": "fp32",
    }
    return {**raw, **sizes}


def resumed(config: RunConfig) -> float:
    """The largest difference of a weight after `max_step` steps of a small configuration."""
    whole = _state(config)
    _train_until(config, whole, STEPS)
    first = _state(config)
    _train_until(config, first, STEPS // 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "last.pt"
        checkpoint.save_last(path, first, 0)
        second = _state(config)
        checkpoint.restore(checkpoint.load(path), second)
    _train_until(config, second, STEPS)
    mine, other = whole.model.state_dict(), second.model.state_dict()
    return max(
        (float((mine[name] - other[name]).abs().max()) for name in mine if mine[name].numel()),
        default=0.0,
    )


def _state(config: RunConfig) -> TrainingState:
    seed_everything(config.seed)
    model = build_model(config.model, VOCABULARY)
    optimiser = build_optimiser(model.parameters(), config.train)
    average = None if config.train.average_from is None else weight_average(model)
    memories = empty_memories(model, config.train, training_span(config))
    return TrainingState(model, optimiser, memories, average=average)


def _train_until(config: RunConfig, state: TrainingState, until: int) -> None:
    """Goes on to step `until`; validation is left out, as it changes nothing."""
    ids = np.random.default_rng(1).integers(VOCABULARY, size=200)
    train_config = config.train
    streams = Streams(ids, train_config.batch_size, train_config.tgt_len, train_config.stride)
    settings = Settings(
        train_config, training_span(config), torch.device("cpu"), "fp32", config.model.n_layer
    )
    hooks = Hooks(
        log=lambda _: None,
        validate=lambda: 0.0,
        save=lambda _: None,
        should_stop=lambda: state.progress.step >= until,
    )
    train(state, streams, settings, hooks)


INVARIANTS: Mapping[str, float] = {
    "causality": ROUNDING,
    "memory purity": 0.0,
    "segments": TOLERANCE,
    "contexts": TOLERANCE,
    "distance": TOLERANCE,
    "batches": TOLERANCE,
    "softmax": TOLERANCE,
    "resumed": 0.0,
}
"""Name -> the largest difference that is rounding."""
FLOAT32 = 1e-5
"""The same for architectures of transformers, which compute norms and rotations in float32."""
CUTS = (TGT_LEN, TGT_LEN, 3)
"""Two whole segments and a short one."""


@dataclass(frozen=True)
class Checked:
    """A model configuration held against the invariants.

    Attributes:
        labels: rows that have it, with their experiment where there are several.
        differences: by invariant; None where it is not claimed of this kind of model.
        limits: the largest differences that are rounding.
        cuts: how much losses depend on where segments are cut with the row's own memory, which
            is no fault.
        counterexamples: what a plug-in breaks in a longer text, and where.
    """

    labels: tuple[str, ...]
    differences: Mapping[str, float | None]
    cuts: float
    limits: Mapping[str, float] = field(default_factory=lambda: INVARIANTS)
    counterexamples: tuple[Counterexample, ...] = ()

    @property
    def broken(self) -> tuple[str, ...]:
        """The invariants that do not hold."""
        return tuple(
            name
            for name, found in self.differences.items()
            if found is not None and not found <= self.limits[name]
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
        yield Checked(tuple(dict.fromkeys(labels[key])), *check(config), limits_of(config))


def limits_of(config: RunConfig) -> Mapping[str, float]:
    """The largest differences by invariant that are rounding in this model."""
    if config.model.kind != "hf":
        return INVARIANTS
    return {name: FLOAT32 if limit else limit for name, limit in INVARIANTS.items()}


def check(config: RunConfig) -> tuple[dict[str, float | None], float]:
    """Differences by invariant, and the dependence on cuts, of a small configuration."""
    torch.manual_seed(1)
    model = build_model(config.model, VOCABULARY).double().eval()
    if config.model.kind != "hf":
        strengthen(model)
    tokens = torch.randint(VOCABULARY, (3, sum(CUTS) + 1))
    span = training_span(config)
    spans = (span, AttentionSpan(mem_len=0))
    # Else positions start anew at every segment, or nobody knows what transformers remembers.
    coherent = config.model.has_coherent_memory and config.model.remembers_inputs
    coherent = coherent and (config.model.kind != "hf" or config.train.recurrence)
    entry = config.model.encoding_entry
    positions = config.model.learned_positions
    by_distance = entry is not None and entry.exactness == "distance"
    found: dict[str, float | None] = {
        "causality": max(
            invariants.causality(model, tokens, CUTS, each, VOCABULARY) for each in spans
        ),
        "memory purity": invariants.memory_purity(model, tokens, CUTS, span),
        "segments": invariants.segments(model, tokens, CUTS) if coherent else None,
        "contexts": invariants.contexts(model, tokens[:, : (positions or sum(CUTS)) + 1]),
        "distance": invariants.distance_alone(model, tokens, VOCABULARY) if by_distance else None,
        "batches": invariants.batches(model, tokens, CUTS, span),
        "softmax": invariants.dense_softmax(model, tokens[:, : TGT_LEN + 1], span),
    }
    model.zero_grad()
    found["resumed"] = resumed(config)
    halves = [TGT_LEN // 2] * 4
    cuts = invariants.cut_dependence(model, tokens, [TGT_LEN, TGT_LEN], halves, span)
    return found, cuts


def _rows(specs: Sequence[Path]) -> Iterator[tuple[str, RunConfig]]:
    """(label, small configuration) of every row."""
    if not specs:
        for name in ENCODINGS:
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
        experiment = load_experiment(path)
        for line in experiment.lines:
            label = line.label if len(specs) == 1 else f"{experiment.name}/{line.label}"
            yield label, small(line.configs[0])


LONG = 96
"""Tokens of a segment in which a plug-in is searched for counterexamples; memory is as long."""


def check_plugin(path: Path, name: str) -> Iterator[Checked]:
    """Checks what a plug-in registers, or one class of it, with and without recurrence.

    Args:
        name: of the class, or as registered; empty for all.

    Raises:
        UserError: if nothing of that name is an encoding or a kind of model, or if one fails.
    """
    torch.set_num_threads(1)
    plugin = read_plugin(path)
    load_plugin(plugin)
    models = {
        each: {key: each}
        for key, catalogue in (("encoding", ENCODINGS), ("kind", KINDS))
        for each, entry in catalogue.items()
        if entry.source == plugin.sha256 and name in ("", each, _class_name(entry))
    }
    if not models:
        raise UserError(
            f"{path}:{name}: no encoding or model of that name is registered",
            "give the class's name, or none for all of the file",
        )
    for each, model in models.items():
        entry = KINDS[each] if "kind" in model else ENCODINGS[each]
        for recurrence in (True, False):
            with naming_plugin(_class_name(entry), plugin.sha256):
                checked = _checked_plugin(each, model, recurrence)
            yield checked


def _class_name(entry: EncodingEntry | KindEntry) -> str:
    """What the class is called, which is not imported for it."""
    target = entry.target
    return target.rpartition(":")[2] if isinstance(target, str) else target.__name__


def _checked_plugin(name: str, model: Raw, recurrence: bool) -> Checked:
    raw = {"corpus": "enwiki-sample", "model": model, "train": {"recurrence": recurrence}}
    config = small(RunConfig.model_validate(raw))
    return Checked(
        (f"{name}, {'with' if recurrence else 'without'} recurrence",),
        *check(config),
        limits_of(config),
        tuple(_searched(config)),
    )


def _searched(config: RunConfig) -> Iterator[Counterexample]:
    """Counterexamples in two segments of `LONG` tokens, with weights that matter."""
    raw = config.model_dump(mode="json")
    memory = LONG if config.train.recurrence else 0
    long = RunConfig.model_validate(
        {
            **raw,
            "model": {**raw["model"], "max_distance": None},
            "train": {**raw["train"], "tgt_len": LONG, "mem_len": memory},
        }
    )
    torch.manual_seed(1)
    model = build_model(long.model, VOCABULARY).double().eval()
    strengthen(model)
    tokens = torch.randint(VOCABULARY, (3, 2 * LONG + 1))
    spans = [training_span(long)]
    if memory:
        spans.append(AttentionSpan(mem_len=memory, same_length=True))
    coherent = long.model.has_coherent_memory and long.model.remembers_inputs
    yield from counterexamples(model, tokens, (LONG, LONG), spans, VOCABULARY, coherent)


def spec_files(given: Sequence[Path]) -> list[Path]:
    """The files to check: those given, with the files of folders among them.

    Raises:
        UserError: for a folder without experiment files.
    """
    found: list[Path] = []
    for path in given:
        if not path.exists():
            raise UserError(f"{path}: no such file or folder", "give an experiment file")
        files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
        if not files:
            raise UserError(f"{path}: no experiment file", "give one, or a folder of *.yaml")
        found += files
    return found
