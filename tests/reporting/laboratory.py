"""Synthetic experiment directories in the formats that real runs leave, with numbers to choose."""

import math
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.records.as_record import append_line, as_record
from txlbench.config.grid import Line
from txlbench.config.identity import hashed_fields
from txlbench.config.measurements import (
    Measurement,
    at_attention_length,
    attention_lengths,
    by_position,
    training_regime,
)
from txlbench.config.run_config import RunConfig
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import Facts, Failure, RunState, Summary

UNIGRAM_LOSS = 3.5
COMMIT = "0123456789abcdef0123456789abcdef01234567"

SPEC: dict[str, Any] = {
    "name": "small",
    "corpus": "enwiki-sample",
    "model": {"n_layer": 2, "d_model": 32, "n_head": 2},
    "train": {"tgt_len": 16, "mem_len": 16, "batch_size": 4, "max_step": 100},
    "evaluate": {"attention_lengths": [8, 16, 32, 64], "tokens": 2000},
    "seeds": [1, 2, 3],
    "rows": [
        {
            "label": "xl",
            "set": {"model.encoding": "xl"},
            "paper": {"ppl_init": 27.02, "attention_length": 500},
        },
        {"label": "xl, no memory", "set": {"train.recurrence": False}},
        {
            "label": "absolute",
            "set": {"model.encoding": "absolute", "train.recurrence": False, "train.loss": "half"},
        },
    ],
}


def quality(config: RunConfig) -> float:
    """A made-up loss in nats: recurrence and relative positions help."""
    loss = 1.9 if config.train.recurrence else 2.0
    return loss + (0 if config.model.has_coherent_memory else 0.12)


class Laboratory:
    """Writes experiments and what their runs would leave."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def experiment(self, **changes: Any) -> ExperimentDirectory:
        """An experiment directory with its file only; `changes` replace top-level keys."""
        spec = {**SPEC, **changes}
        directory = ExperimentDirectory(self.folder / spec["name"])
        directory.path.mkdir(parents=True, exist_ok=True)
        directory.spec_file.write_text(yaml.safe_dump(spec, sort_keys=False))
        return directory

    def finished(self, **changes: Any) -> ExperimentDirectory:
        """An experiment all of whose runs are finished."""
        directory = self.experiment(**changes)
        for line, config, run in self.runs(directory):
            self.finish(run, config, line)
        return directory

    @staticmethod
    def runs(directory: ExperimentDirectory) -> list[tuple[Line, RunConfig, RunDirectory]]:
        return [
            (line, config, directory.run(identity))
            for line in directory.read_spec().lines
            for identity, config in zip(line.run_ids, line.configs, strict=True)
        ]

    def start(self, run: RunDirectory, config: RunConfig, line: Line) -> None:
        """What a run leaves before its first step."""
        run.path.mkdir(parents=True, exist_ok=True)
        run.write_config(config, line.paper, line.label)
        run.start()
        facts = {
            "commit": COMMIT,
            "txlbench": "0.1.0",
            "device": "cpu",
            "device_name": "Abacus",
            "precision": "fp32",
            "threads": 1,
            "corpus": {
                "checksum": "abc123",
                "vocabulary_size": 256,
                "tokens": {"train": 1000, "valid": 100, "test": 100},
                "unigram_loss": {"valid": UNIGRAM_LOSS, "test": UNIGRAM_LOSS},
            },
            "parameters": 123_456,
        }
        run.write_facts(as_record(Facts, facts))

    def train(self, run: RunDirectory, config: RunConfig, steps: int, first: int = 1) -> None:
        """Metric lines of steps `first` to `steps`, in the manner of a real learning curve."""
        noise = random.Random(config.seed)
        final = quality(config) + 0.01 * config.seed
        for step in range(first, steps + 1):
            expected = final + 2.5 * math.exp(-step / 15) + 0.6 / (1 + step / 10)
            if step % 2 == 0:
                loss = expected + noise.gauss(0, 0.08)
                append_line(run.metrics_file, step=step, tokens=step * 64, train_loss=loss, lr=1e-3)
                append_line(run.timings_file, step=step, time=time.time(), tokens_per_second=5e3)
            if step % 10 == 0:
                append_line(run.metrics_file, step=step, tokens=step * 64, valid_loss=expected)

    def finish(
        self,
        run: RunDirectory,
        config: RunConfig,
        line: Line,
        loss: Callable[[RunConfig], float] = quality,
        **record: Any,
    ) -> None:
        """Everything that a finished run leaves.

        Args:
            loss: the best loss of a configuration in nats, to which 0.01 a seed is added.
            record: fields that replace those of the evaluation records.
        """
        self.start(run, config, line)
        self.train(run, config, config.train.max_step)
        numbers = summary(config, loss(config) + 0.01 * config.seed, record)
        run.write_summary(as_record(Summary, numbers))
        run.set_state(RunState.FINISHED)

    def fail(
        self, run: RunDirectory, config: RunConfig, line: Line, state: RunState, message: str
    ) -> None:
        """A run that ended early in `state`."""
        self.start(run, config, line)
        self.train(run, config, 40)
        run.set_state(state, Failure(type="RuntimeError", message=message, where="loop.py:12"))


def evaluation(measurement: Measurement, loss: float, record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as evaluation writes it, its positions falling where there is no memory."""
    noise = random.Random(measurement.key)
    slope = 0.05 if measurement.mem_len else 1.2
    positions = [loss + slope / (1 + i) + noise.gauss(0, 0.02) for i in range(measurement.tgt_len)]
    return {
        "measurement": measurement.model_dump(mode="json"),
        "loss": loss,
        "tokens": 2000,
        "dropped": 0,
        "by_position": positions,
        "checkpoint": "best",
        "step": 100,
        "dtype": "bf16",
        "device": "cpu",
        "seconds": 1.0,
        **record,
    }


def at_length(config: RunConfig, best: float, length: int) -> float:
    """A made-up sweep: more context helps a little, untrained absolute positions hurt."""
    loss = best + 0.4 / length
    if config.model.encoding == "absolute" and length > config.train.tgt_len:
        loss += 0.002 * (length - config.train.tgt_len)
    return loss


def summary(config: RunConfig, best: float, record: Mapping[str, Any]) -> dict[str, Any]:
    """`summary.json` of a run whose best loss is near `best` nats."""
    split = config.evaluate.split
    sweep = {length: at_length(config, best, length) for length in attention_lengths(config)}
    length = min(sweep, key=lambda each: sweep[each])
    gap = 0.02 if config.train.recurrence else 0.15
    return {
        "schema": "txlbench.summary/1",
        "training": {"steps": 100, "tokens": 6400, "targets_trained": 6400, "best_step": 100},
        "results": [
            {
                "evaluate": hashed_fields(config.evaluate),
                "init": evaluation(training_regime(config, split), best + gap, record),
                "best": evaluation(
                    at_attention_length(config, split, length), sweep[length], record
                ),
                "best_length": length,
                "attention_length": length,
                "sweep": [
                    {"attention_length": each, "split": name, "loss": value, "tokens": 2000}
                    for name in dict.fromkeys(("valid", split))
                    for each, value in sweep.items()
                ],
                "by_position": evaluation(by_position(config, split), best + gap, record),
            }
        ],
    }
