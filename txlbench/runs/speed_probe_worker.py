"""Trains and evaluates one shape for a few seconds in a process of its own; writes no file.

`python -m txlbench.runs.speed_probe_worker` reads a `ProbeJob` as one line of JSON from standard
input and prints a `Probed`. Tokens are synthetic: rank r is met in proportion to 1 / r.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray

from txlbench.config.counting import evaluation_flops
from txlbench.config.measurements import Measurement, training_span
from txlbench.config.plugins import load_files
from txlbench.data.streams import Batch
from txlbench.evaluation.scoring import score
from txlbench.machine import peak_memory
from txlbench.models.factory import build_model
from txlbench.models.interface import LanguageModel
from txlbench.runs.speed_probe import Probed, ProbedMeasurement, ProbeJob
from txlbench.seeding import seed_everything
from txlbench.training.loop import Hooks, Settings, train
from txlbench.training.optimisation import build_optimiser, weight_average
from txlbench.training.runtime import resolve_precision
from txlbench.training.self_test import settle_attention
from txlbench.training.state import TrainingState, compiled_forward, empty_memories

WARM_UP = 2
"""Steps, at least, that are not timed: they allocate, compile, and fill the memory."""
EVALUATION_SHARE = 0.2
"""Share of the seconds that each measurement gets."""


def token_ids(count: int, vocabulary_size: int) -> NDArray[np.int64]:
    """So many ids, rank r in proportion to 1 / r."""
    uniform = np.random.default_rng(1).random(count)
    return np.minimum(np.exp(uniform * np.log(vocabulary_size)), vocabulary_size).astype(int) - 1


class SyntheticBatches:
    """Segments of random tokens for every step, in one epoch without end."""

    def __init__(self, job: ProbeJob) -> None:
        train = job.config.train
        self.scored, shape = train.stride, (train.batch_size, train.tgt_len + 1)
        ids = token_ids(shape[0] * shape[1], job.vocabulary_size)
        self.tokens = torch.from_numpy(ids).view(shape)

    def __getitem__(self, step: int) -> Batch:
        return Batch(self.tokens[:, :-1], self.tokens[:, 1:], self.scored, step == 0)


def training_state(job: ProbeJob, device: torch.device) -> tuple[TrainingState, Settings]:
    """A training as it starts."""
    config = job.config
    model = build_model(config.model, job.vocabulary_size).to(device)
    precision = resolve_precision(config.train.precision, device)
    span = training_span(config)
    settings = Settings(config.train, span, device, precision, config.model.n_layer)
    average = None if config.train.average_from is None else weight_average(model)
    memories = empty_memories(model, config.train, span)
    optimiser = build_optimiser(model.parameters(), config.train)
    state = TrainingState(model, optimiser, memories, average=average)
    settle_attention(model, config.model, settings)
    if config.train.compile:
        state.forward = compiled_forward(model)
    return state, settings


def timed_steps(state: TrainingState, settings: Settings, job: ProbeJob) -> list[float]:
    """Seconds of single steps once the memory is full, for as long as the job allows."""
    config, ends = settings.train, [time.perf_counter()]
    warm_up = max(WARM_UP, 1 + -(-config.memory // config.stride))
    deadline = ends[0] + job.seconds

    def stops() -> bool:
        ends.append(time.perf_counter())
        steps = len(ends) - 1
        warm = steps > warm_up or (steps >= 2 and ends[-1] > ends[0] + job.seconds / 2)
        return steps >= job.steps or (warm and ends[-1] > deadline)

    hooks = Hooks(log=_nothing, validate=lambda: 0.0, save=_nothing, should_stop=stops)
    endless = config.model_copy(update={"eval_interval": config.max_step + 1})
    train(state, SyntheticBatches(job), replace(settings, train=endless), hooks)
    seconds = np.diff(ends).tolist()
    return seconds[warm_up:] or seconds[-1:]


def _nothing(_: object) -> None:
    """Neither logs nor saves."""


def timed_measurement(
    model: LanguageModel, job: ProbeJob, measurement: Measurement, device: torch.device
) -> ProbedMeasurement:
    """How fast a measurement is computed, in necessary FLOPs a second, over a part of it."""
    depth, targets, seconds = job.config.model.n_layer, measurement.batch_size, 0.0
    allowed = job.seconds * EVALUATION_SHARE
    while True:
        part = measurement.model_copy(update={"tokens": targets})
        lead = max(measurement.mem_len, measurement.tgt_len)
        predictions = targets + measurement.batch_size * lead
        ids = token_ids(predictions + 1, job.vocabulary_size)
        begin = time.perf_counter()
        score(model, ids, part, depth, device)
        seconds = time.perf_counter() - begin
        if seconds > allowed / 3 or targets > 10**7:
            break
        targets = round(targets * min(8.0, allowed / max(seconds, 1e-3)))
    flops = evaluation_flops(job.config.model, job.vocabulary_size, part, predictions)
    return ProbedMeasurement(key=measurement.key, flops_a_second=flops / seconds)


def probe(job: ProbeJob) -> Probed:
    """Times steps, then each measurement; the peak of memory is that of training."""
    device = torch.device(job.device)
    seed_everything(1)
    torch.ones(64, 64, device=device).mm(torch.ones(64, 64, device=device))
    before = peak_memory(job.device)
    state, settings = training_state(job, device)
    seconds = timed_steps(state, settings, job)
    peak = peak_memory(job.device)
    model = state.evaluated.eval()
    del state.optimiser, state.memories
    return Probed(
        step_seconds=median(seconds),
        steps=len(seconds),
        precision=settings.precision,
        threads=torch.get_num_threads(),
        device=job.device,
        memory_bytes=peak,
        grown_bytes=peak - before,
        measurements=tuple(
            timed_measurement(model, job, each, device) for each in job.measurements
        ),
    )


def main(write: Callable[[str], object] = print) -> None:
    load_files(map(Path, sys.argv[1:]))
    job = ProbeJob.model_validate_json(sys.stdin.readline())
    write(probe(job).model_dump_json())


if __name__ == "__main__":
    main()
