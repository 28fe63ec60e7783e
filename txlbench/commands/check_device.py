"""`check --device cuda`: the self-test of fused attention, as trainings run it, of an experiment.

Models keep their widths, segments, memory and batch, as kernels are compiled for those.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from txlbench.config.base import AttentionSpan
from txlbench.config.benchmarks import SIZES
from txlbench.config.catalogue import ENCODINGS
from txlbench.config.grid import load_experiment
from txlbench.config.identity import fingerprint
from txlbench.config.measurements import training_span
from txlbench.config.model import ModelConfig
from txlbench.config.run_config import RunConfig
from txlbench.records.schema import AttentionFacts
from txlbench.training.runtime import resolve_precision
from txlbench.training.self_test import KernelShape, compare_attention

DROPPED = 0.1
"""Attention dropout of one model among those that are tested without an experiment file."""


@dataclass(frozen=True)
class CheckedKernel:
    """A model's attention in the shapes of its training, and the path that it would take."""

    labels: tuple[str, ...]
    precision: str
    attention: AttentionFacts


def check_kernels(
    specs: Sequence[Path], device: torch.device, acts_on: str | None = None
) -> Iterator[CheckedKernel]:
    """Tests each distinct shape of the experiment files; of every encoding, without any.

    Rows of models without this attention are left out.

    Args:
        acts_on: the type of device by whose rules, for tests; None for its own.
    """
    found: dict[str, tuple[list[str], ModelConfig, KernelShape]] = {}
    cases = _rows(specs, device) if specs else _encodings(device)
    for label, model, rows, tgt_len, span, precision in cases:
        shape = KernelShape(rows, tgt_len, span, precision, device, acts_on)
        decisive = model.model_dump(mode="json", exclude={"n_layer", "dropout", "cutoffs"})
        key = fingerprint({**decisive, "shape": repr(shape)})
        labels, *_ = found.setdefault(key, ([], model, shape))
        labels.append(label)
    for labels, model, shape in found.values():
        result = compare_attention(model, shape)
        yield CheckedKernel(tuple(dict.fromkeys(labels)), shape.precision, result)


Case = tuple[str, ModelConfig, int, int, AttentionSpan, str]
"""Label, model, rows, tgt_len, span and number format."""


def _rows(specs: Sequence[Path], device: torch.device) -> Iterator[Case]:
    for path in specs:
        experiment = load_experiment(path)
        for line in experiment.lines:
            config: RunConfig = line.configs[0]
            train = config.train
            if config.model.encoding_entry is None:
                continue
            label = line.label if len(specs) == 1 else f"{experiment.name}/{line.label}"
            rows = train.batch_size // train.batch_chunk // train.devices
            precision = resolve_precision(train.precision, device)
            yield label, config.model, rows, train.tgt_len, training_span(config), precision


def _encodings(device: torch.device) -> Iterator[Case]:
    """Every encoding in the sizes of `bench`'s small model, one with attention dropout too."""
    size = SIZES["small"]
    formats = dict.fromkeys(resolve_precision(each, device) for each in ("fp32", "tf32", "auto"))
    span = AttentionSpan(mem_len=size.tgt_len)
    models: dict[str, dict[str, Any]] = {name: {"encoding": name} for name in ENCODINGS}
    models["xl, attention dropout"] = {"encoding": "xl", "dropatt": DROPPED}
    for label, changes in models.items():
        raw = {"corpus": "enwiki-sample", "model": size.model.model_dump() | changes}
        raw["train"] = {"tgt_len": size.tgt_len, "mem_len": size.tgt_len}
        model = RunConfig.model_validate(raw).model
        for precision in formats:
            yield label, model, size.batch_size, size.tgt_len, span, precision
