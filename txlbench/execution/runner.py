"""One run from its directory to its summary: the place where all parts come together."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from txlbench.config.measurements import training_regime
from txlbench.config.run import RunConfig
from txlbench.data.corpus import Corpus
from txlbench.data.preparation import prepare
from txlbench.data.streams import Streams
from txlbench.evaluation.scoring import score
from txlbench.execution.facts import gather_facts
from txlbench.execution.job import Job
from txlbench.execution.measure import measure
from txlbench.models.factory import build_model
from txlbench.records.run_directory import RunDirectory
from txlbench.records.states import RunState
from txlbench.seeding import seed_everything
from txlbench.training import checkpoint
from txlbench.training.averaging import WeightAverage
from txlbench.training.loop import Hooks, Settings, train
from txlbench.training.optimisation import build_optimiser
from txlbench.training.precision import resolve_precision
from txlbench.training.state import TrainingState, empty_memories, training_view

VALIDATION_STREAMS = 10
"""Of validation while training, as the official code. It decides which checkpoint is best, so it
must not follow `evaluate`, which is no part of a run's identity."""


def execute(job: Job, should_stop: Callable[[], bool]) -> RunState:
    """Trains and measures what is missing; returns the state it leaves the run in.

    Args:
        should_stop: asked between steps and between measurements; True leaves a checkpoint and
            the state interrupted.
    """
    run = RunDirectory(job.directory)
    config = run.read_config()
    device = torch.device(job.device)
    corpus = prepare(config.corpus)
    run.start()
    if "training" not in run.read_summary():
        seed_everything(config.seed)
        if not _Training(run, config, corpus, device, should_stop).run():
            run.set_state(RunState.INTERRUPTED)
            return RunState.INTERRUPTED
        run.set_state(RunState.TRAINED)
    complete = measure(run, config, corpus, device, job.evaluations, should_stop)
    state = RunState.FINISHED if complete else RunState.INTERRUPTED
    run.set_state(state)
    return state


@dataclass
class _Training:
    """The training of one run: state, batches, and the hooks around its steps."""

    directory: RunDirectory
    config: RunConfig
    corpus: Corpus
    device: torch.device
    should_stop: Callable[[], bool]
    state: TrainingState = field(init=False)
    settings: Settings = field(init=False)

    def __post_init__(self) -> None:
        config, train_config = self.config, self.config.train
        model = build_model(config.model, len(self.corpus.vocabulary)).to(self.device)
        self.settings = Settings(
            train_config,
            training_view(config),
            self.device,
            resolve_precision(train_config.precision, self.device),
            config.model.n_layer,
        )
        memories = empty_memories(model, train_config, self.settings.view)
        optimiser = build_optimiser(model.parameters(), train_config)
        average = None if train_config.average_from is None else WeightAverage(model)
        self.state = TrainingState(model, optimiser, memories, average=average)
        self.valid = training_regime(config, "valid").model_copy(
            update={"tokens": train_config.eval_tokens, "batch_size": VALIDATION_STREAMS}
        )
        self.began = time.monotonic()
        self.tokens_before = 0
        self.seconds_before = 0.0

    def run(self) -> bool:
        """Continues from the last checkpoint if there is one; False if asked to stop."""
        train_config = self.config.train
        streams = Streams(
            self.corpus.ids("train"),
            train_config.batch_size,
            train_config.tgt_len,
            train_config.stride,
        )
        self._resume()
        self.directory.write_facts(
            gather_facts(
                self.corpus,
                self.state.model,
                self.device,
                self.settings.precision,
                streams.dropped,
            )
        )
        self.directory.write_tokens(self.corpus.vocabulary.symbols)
        self._start_clock()
        hooks = Hooks(self._log, self._validate, self._save, self.should_stop)
        if not train(self.state, streams, self.settings, hooks):
            return False
        self._summarise()
        return True

    def _resume(self) -> None:
        """Puts state and metrics where the last checkpoint found them, or starts afresh."""
        last = self.directory.checkpoints / "last.pt"
        kept = 0
        if last.exists():
            kept = checkpoint.restore(checkpoint.load(last), self.state)
        self.directory.truncate_metrics(kept)

    def _start_clock(self) -> None:
        """Time goes on from the line that the checkpoint's step logged."""
        progress = self.state.progress
        earlier = [
            line["seconds"]
            for line in self.directory.read_timings()
            if line["step"] <= progress.step
        ]
        self.seconds_before = earlier[-1] if earlier and progress.step else 0.0
        self.began, self.tokens_before = time.monotonic(), progress.tokens

    def _log(self, line: dict[str, float | int]) -> None:
        self.directory.append_metrics(line)
        if "train_loss" in line:
            self.directory.append_timings(self._timing())

    def _timing(self) -> dict[str, Any]:
        seconds = time.monotonic() - self.began
        progress = self.state.progress
        return {
            "step": progress.step,
            "time": time.time(),
            "seconds": self.seconds_before + seconds,
            "tokens_per_second": (progress.tokens - self.tokens_before) / seconds,
            "memory_bytes": _peak_memory(self.device),
        }

    def _validate(self) -> float:
        ids, depth = self.corpus.ids("valid"), self.config.model.n_layer
        return score(self.state.model, ids, self.valid, depth, self.device).loss

    def _save(self, best: bool) -> None:
        if best:
            checkpoint.save_weights(self.directory.checkpoints / "best.pt", self.state)
        metrics = self.directory.metrics_file
        written = metrics.stat().st_size if metrics.exists() else 0
        checkpoint.save_last(self.directory.checkpoints / "last.pt", self.state, written)

    def _summarise(self) -> None:
        progress = self.state.progress
        timings = list(self.directory.read_timings())
        self.directory.write_summary(
            {
                "schema": "txlbench.summary/1",
                "training": {
                    "steps": progress.step,
                    "tokens": progress.tokens,
                    "targets_trained": progress.targets,
                    "best_step": progress.best_step,
                    "best_valid_loss": progress.best_loss,
                    "final_valid_loss": progress.last_loss,
                    "seconds": timings[-1]["seconds"],
                    "tokens_per_second": timings[-1]["tokens_per_second"],
                },
            }
        )


def _peak_memory(device: torch.device) -> int:
    """Bytes of the device, or of the process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
