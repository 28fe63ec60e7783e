"""Memory by formula: against the tensors that PyTorch saves, and against the peak of a process."""

import os
import subprocess
import sys

import pytest
import torch

from tests.config.experiments import run
from txlbench.config.memory_use import (
    BASELINE,
    PADDING,
    TILE_BYTES,
    saved_for_gradient,
    training_memory,
)
from txlbench.config.run_config import RunConfig
from txlbench.machine import worker_environment
from txlbench.models import softmax
from txlbench.models.kernels import tiles
from txlbench.runs.speed_probe import Probed, ProbeJob
from txlbench.runs.speed_probe_worker import SyntheticBatches, training_state
from txlbench.training.optimisation import scored_loss
from txlbench.training.runtime import autocast

SMALL = {"n_layer": 4, "d_model": 256, "n_head": 4, "d_head": 64, "d_inner": 1024, "dropout": 0.1}
BASE = {"n_layer": 12, "d_model": 512, "n_head": 8, "d_head": 64, "d_inner": 2048, "dropout": 0.1}
LSTM = {"kind": "lstm", "n_layer": 2, "d_model": 512}
QRNN = {"kind": "qrnn", "n_layer": 2, "d_model": 512}
GLA, DELTA = {**SMALL, "kind": "gla"}, {**SMALL, "kind": "gated-delta", "d_inner": 512}
WORDS = {**SMALL, "cutoffs": [2000, 8000]}
OF_SMALL, OF_BASE = {"tgt_len": 128, "batch_size": 16}, {"tgt_len": 512, "batch_size": 2}
SHORT = {"tgt_len": 32, "batch_size": 8}


def config(model: dict, train: dict, precision: str = "fp32", **more) -> RunConfig:
    return run(model=model, train={**train, "precision": precision, **more})


SAVED = {
    "xl": (SMALL, {}, 0.03),
    "xl, bf16": (SMALL, {"precision": "bf16"}, 0.03),
    "no memory": (SMALL, {"recurrence": False}, 0.03),
    "two chunks": (SMALL, {"batch_chunk": 2}, 0.03),
    "half loss": ({**SMALL, "encoding": "absolute"}, {"recurrence": False, "loss": "half"}, 0.03),
    "no dropout": ({**SMALL, "dropout": 0.0}, {}, 0.03),
    "shaw": ({**SMALL, "encoding": "shaw"}, {}, 0.05),
    "lstm": (LSTM, {}, 0.15),
    "qrnn": (QRNN, {}, 0.15),
    "gla": (GLA, {}, 0.1),
    "gla, bf16": (GLA, {"precision": "bf16"}, 0.1),
    "gated-delta": (DELTA, {}, 0.1),
    "gated-delta, odd chunk": (DELTA, {"tgt_len": 100, "batch_size": 4}, 0.1),
}


@pytest.mark.parametrize("name", SAVED)
def test_activations_are_the_tensors_that_the_gradient_saves(name):
    model, train, tolerance = SAVED[name]
    asked = config(model, SHORT, **{"precision": "fp32", **train})
    number = 2 if asked.train.precision == "bf16" else 4
    expected = saved_for_gradient(asked, 205, number, "cpu")
    assert saved_bytes(asked) == pytest.approx(expected, rel=tolerance)


def saved_bytes(asked: RunConfig) -> int:
    """Bytes of what one chunk's forward pass saves with a full memory, weights apart."""
    device = torch.device("cpu")
    job = ProbeJob(config=asked, vocabulary_size=205)
    state, settings = training_state(job, device)
    state.model.train()
    weights = {weight.untyped_storage().data_ptr() for weight in state.model.parameters()}
    batch, rows = SyntheticBatches(job)[1], len(state.memories)
    tokens, targets = (part.chunk(rows)[0] for part in (batch.tokens, batch.targets))
    held, sizes = [], {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            held.append(tensor)  # so that no address is used again
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    memory = state.memories[0]
    for _ in range(2):
        held.clear()
        sizes.clear()
        saving = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        with autocast(settings.precision, device), saving:
            losses, memory = scored_loss(state.model, tokens, targets, batch.scored, memory)
    assert losses.scored.isfinite()
    return sum(sizes.values()) - 4 * 205 * tokens.shape[0] * batch.scored


MEASURED = {
    "small": (SMALL, OF_SMALL, 205, {}),
    "small, bf16": (SMALL, OF_SMALL, 205, {"precision": "bf16"}),
    "small, no memory": (SMALL, OF_SMALL, 205, {"recurrence": False}),
    "small, four chunks": (SMALL, OF_SMALL, 205, {"batch_chunk": 4}),
    "adaptive softmax": (WORDS, OF_SMALL, 33_278, {}),
    "lstm": (LSTM, OF_SMALL, 205, {}),
    "qrnn": (QRNN, OF_SMALL, 205, {}),
    "gla": (GLA, OF_SMALL, 205, {}),
    "gated-delta": (DELTA, OF_SMALL, 205, {}),
    "base": (BASE, OF_BASE, 205, {}),
    "base, bf16": (BASE, OF_BASE, 205, {"precision": "bf16"}),
    "base, no memory": (BASE, OF_BASE, 205, {"recurrence": False}),
}
QUICK: set[str] = set()
ALONE = [pytest.mark.full, pytest.mark.alone]
TOLERANCE = 0.2


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are fitted to Linux's allocator")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else ALONE) for name in MEASURED],
)
def test_the_peak_of_a_process_is_as_predicted(name):
    model, train, vocabulary, more = MEASURED[name]
    asked = config(model, train, **{"precision": "fp32", **more})
    found = probed(ProbeJob(config=asked, vocabulary_size=vocabulary, steps=3, seconds=60))
    predicted = training_memory(asked, vocabulary, found.precision).total - BASELINE
    assert found.grown_bytes == pytest.approx(predicted, rel=TOLERANCE)


def probed(job: ProbeJob) -> Probed:
    done = subprocess.run(
        [sys.executable, "-m", "txlbench.runs.speed_probe_worker"],
        input=job.model_dump_json() + "\n",
        capture_output=True,
        text=True,
        check=True,
        env=worker_environment(1, os.environ),
    )
    return Probed.model_validate_json(done.stdout.splitlines()[-1])


def test_sizes_are_those_of_the_kernels():
    assert tiles.TILE_BYTES == softmax.LOGITS == TILE_BYTES
    assert tiles.PADDING == PADDING


def test_chunks_divide_activations_and_nothing_else():
    whole = training_memory(config(SMALL, OF_SMALL), 205, "fp32")
    parts = training_memory(config(SMALL, OF_SMALL, batch_chunk=4), 205, "fp32")
    assert whole.activations == pytest.approx(4 * parts.activations, rel=0.05)
    assert whole.weights == parts.weights
    assert whole.optimiser == 2 * whole.weights
    assert parts.total < whole.total


def test_an_average_is_one_more_copy_and_a_device_keeps_no_probabilities():
    plain = training_memory(config(SMALL, OF_SMALL), 205, "fp32")
    averaged = training_memory(config(SMALL, OF_SMALL, average_from=0.5), 205, "fp32")
    assert averaged.average == plain.weights
    long = config(SMALL, {"tgt_len": 2048, "batch_size": 16})
    on_cpu, on_cuda = (
        training_memory(long, 205, "bf16", device).activations for device in ("cpu", "cuda")
    )
    assert on_cuda < on_cpu / 2
