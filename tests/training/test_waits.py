"""A training step asks a device for nothing before its end: on PyTorch's meta device asking raises.

Tensors there have shapes and no content, so that whatever depends on content, and would make
the host wait for a CUDA device, fails: `item`, `tolist`, `nonzero`, masks as indices. The one
question of a step, whether loss and gradient are finite, is answered in its place.
"""

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from tests.training.trial import VOCABULARY, config, streams
from txlbench.config.measurements import training_span
from txlbench.models.factory import build_model
from txlbench.training import loop
from txlbench.training.loop import Settings, with_resets
from txlbench.training.state import TrainingState, empty_memories

META = torch.device("meta")
HALF = {"loss": "half", "mem_len": 4}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dropout of attention": ({"dropatt": 0.2, "dropout": 0.1}, {}),
    "adaptive softmax": ({"cutoffs": [3, 7], "div_val": 2, "dropoute": 0.1}, {"batch_chunk": 2}),
    "clusters of one width": ({"cutoffs": [3, 7]}, HALF),
    "resets": ({}, {**HALF, "memory_reset": 0.5, "memory_reset_from": 0.0}),
    "auxiliary losses": ({}, {**HALF, "aux_layers": True, "aux_positions": True}),
    "shaw": ({"encoding": "shaw", "shaw_bias": True}, {}),
    "fox": ({"encoding": "fox", "pre_lnorm": True}, {}),
    "lstm": ({"kind": "lstm", "cutoffs": [3, 7], "div_val": 2}, {}),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Answers the question at a step's end, and notes how many numbers it asks for."""
    counts: list[int] = []

    def read(*scalars: torch.Tensor) -> list[float]:
        assert all(each.device == META for each in scalars)
        counts.append(len(scalars))
        return [1.0] * len(scalars)

    monkeypatch.setattr(loop, "_read", read)
    # Autocast knows no such device.
    monkeypatch.setattr(loop, "autocast", lambda *_: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    return counts


def training(model: dict[str, Any], train: dict[str, Any]) -> tuple[TrainingState, Settings]:
    run = config(model=model, **train)
    with META:
        built = build_model(run.model, VOCABULARY).train()
    optimiser = torch.optim.Adam(built.parameters())  # the fused one refuses this device
    span = training_span(run)
    state = TrainingState(built, optimiser, empty_memories(built, run.train, span))
    return state, Settings(run.train, span, META, "fp32", run.model.n_layer)


@pytest.mark.parametrize("case", CASES)
def test_a_step_reads_numbers_once(case: str, asked: list[int]):
    state, settings = training(*CASES[case])
    batches = streams(config(model=CASES[case][0], **CASES[case][1]))
    for number in range(2):
        state.memories = with_resets(state.memories, settings.train, number)
        loop._step(state, batches[number], settings)
    assert asked == [2, 2]


def test_a_question_is_found(asked: list[int], monkeypatch: pytest.MonkeyPatch):
    """As it was where tokens are counted on the device."""
    state, settings = training(*CASES["adaptive softmax"])
    monkeypatch.setattr(type(state.model), "reads_host_ids", False)
    with pytest.raises(RuntimeError, match=r"meta tensor|Meta"):
        loop._step(state, streams(config())[0], settings)
    assert asked == []
