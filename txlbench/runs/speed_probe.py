"""`--probe`: how fast this machine trains and measures each distinct shape of a plan.

Each shape runs in a process with the device and the threads that its run would have, on
synthetic tokens, and writes nothing. One that would not fit in memory is not tried.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from txlbench.config.measurements import (
    Measurement,
    at_attention_length,
    attention_lengths,
    training_regime,
)
from txlbench.config.memory_use import training_memory
from txlbench.config.plugins import loaded_plugins
from txlbench.config.run_config import RunConfig
from txlbench.machine import Devices, device_memory, worker_environment
from txlbench.runs.failure import readable
from txlbench.runs.plan import PlannedRun, as_met, vocabulary_size


class ProbeJob(BaseModel):
    """What a probing process is to do.

    Attributes:
        seconds: how long it takes steps for; then each measurement has a fifth of that.
        steps: the most steps it takes.
        measurements: those to time.
    """

    model_config = ConfigDict(frozen=True)

    config: RunConfig
    vocabulary_size: int
    device: str = "cpu"
    seconds: float = 10.0
    steps: int = 1000
    measurements: tuple[Measurement, ...] = ()


class ProbedMeasurement(BaseModel):
    """The speed of one measurement, in necessary FLOPs a second."""

    model_config = ConfigDict(frozen=True)

    key: str
    flops_a_second: float


class Probed(BaseModel):
    """What a probing process found.

    Attributes:
        step_seconds: the median step.
        steps: how many were timed.
        memory_bytes: the largest resident set while training, or the most of a CUDA device.
        grown_bytes: the same beyond what the process had before it built the model.
    """

    model_config = ConfigDict(frozen=True)

    step_seconds: float
    steps: int
    precision: str
    threads: int
    device: str
    memory_bytes: int
    grown_bytes: int
    measurements: tuple[ProbedMeasurement, ...]


SCHEDULE = (
    *("lr", "warmup_step", "clip", "max_step", "log_interval", "eval_interval", "eval_tokens"),
    *("checkpoint_interval", "checkpoint_minutes", "memory_reset", "memory_reset_from"),
)
"""Settings of training that change no step's cost."""


def probe_plan(
    runs: Sequence[PlannedRun],
    devices: Devices,
    progress: Callable[[str], None] = lambda _: None,
    seconds: float = 10.0,
) -> dict[str, Probed | str]:
    """What was measured, or why nothing was, by run id; each distinct shape is measured once.

    Args:
        progress: told the label of the run that is measured next.
    """
    found: dict[str, Probed | str] = {}
    by_shape: dict[str, Probed | str] = {}
    for run in runs:
        shape = _shape(run)
        if shape not in by_shape:
            progress(run.labels[0])
            by_shape[shape] = _probe(run, devices, seconds)
        found[run.id] = by_shape[shape]
    return found


def _shape(run: PlannedRun) -> str:
    """What decides how long a step takes."""
    config = run.config
    train = config.train.model_dump_json(exclude=set(SCHEDULE))
    parts = (config.corpus, config.model, config.evaluate)
    return " ".join([train, *(part.model_dump_json() for part in parts)])


def _probe(run: PlannedRun, devices: Devices, seconds: float) -> Probed | str:
    size, device = vocabulary_size(run), devices.names[0]
    if size is None:
        return "the vocabulary is known once the corpus is prepared"
    if reason := lacks_memory(as_met(run), size, device):
        return reason
    job = ProbeJob(
        config=_one_worker(as_met(run)),
        vocabulary_size=size,
        device=device,
        seconds=seconds,
        measurements=_measurements(run.config),
    )
    return _run(job, worker_environment(devices.threads, os.environ))


def lacks_memory(config: RunConfig, size: int, device: str) -> str:
    """Why a run would not fit in the memory of a device of this machine; empty if it would."""
    if config.model.kind == "hf":
        return ""
    limit, kind = device_memory(device), device.partition(":")[0]
    precision = "bf16" if config.train.precision == "bf16" else "fp32"
    needed = training_memory(config, size, precision, kind).total
    if limit is None or needed <= limit:
        return ""
    where = "this machine" if kind == "cpu" else device
    return f"training takes about {readable(needed)} of memory, {where} has {readable(limit)}"


def _one_worker(config: RunConfig) -> RunConfig:
    """What each of `train.devices` does; what they exchange is not measured."""
    train = config.train
    part = {"batch_size": train.batch_size // train.devices, "devices": 1}
    return config.model_copy(update={"train": train.model_copy(update=part)})


def _measurements(config: RunConfig) -> tuple[Measurement, ...]:
    """The training regime, and the longest of the attention lengths: the two kinds of speed."""
    lengths = attention_lengths(config)
    longest = [at_attention_length(config, "valid", max(lengths))] if lengths else []
    return training_regime(config, "valid"), *longest


def _run(job: ProbeJob, environment: Mapping[str, str]) -> Probed | str:
    """The result of a probing process, or the last line of its complaint."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "txlbench.runs.speed_probe_worker"),
            *(each.path for each in loaded_plugins()),
        ],
        input=job.model_dump_json() + "\n",
        capture_output=True,
        text=True,
        env=dict(environment),
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return f"the probe failed: {last[:300]}"
    return Probed.model_validate_json(done.stdout.splitlines()[-1])
