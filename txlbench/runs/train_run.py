"""Executes one run from its directory to its summary, where all parts come together.

Around the training loop: log lines with timings, validations, checkpoints, and the facts of the
machine and the code.
"""

import math
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

import torch

from txlbench.config.base import is_exploded
from txlbench.config.identity import decisive_settings
from txlbench.config.measurements import training_regime, training_span
from txlbench.config.plugins import load_plugin
from txlbench.config.run_config import RunConfig
from txlbench.data.corpus import Corpus
from txlbench.data.prepare import prepare
from txlbench.data.streams import Streams
from txlbench.evaluation.scoring import score
from txlbench.machine import current_commit, peak_memory, processor
from txlbench.models.architectures.architecture_model import ArchitectureModel
from txlbench.models.architectures.probe import check_architecture
from txlbench.models.factory import build_model
from txlbench.models.interface import LanguageModel
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import AttentionFacts, Facts, RunState, Summary, TrainingSummary
from txlbench.runs.checkpointer import Checkpointer
from txlbench.runs.job import Job
from txlbench.runs.measure import measure
from txlbench.seeding import seed_everything
from txlbench.training.checkpoint import SaveSchedule
from txlbench.training.loop import Diverged, Hooks, Settings, train
from txlbench.training.optimisation import build_optimiser, weight_average
from txlbench.training.runtime import resolve_precision, staged
from txlbench.training.self_test import not_fused, settle_attention
from txlbench.training.state import TrainingState, compiled_forward, empty_memories
from txlbench.world import ALONE, World


def gather_facts(
    corpus: Corpus,
    model: LanguageModel,
    settings: Settings,
    attention: AttentionFacts | None,
    dropped: int,
) -> Facts:
    """Commit, versions, device, threads, corpus and size.

    Args:
        attention: on which path it is computed.
        dropped: predictions of train that are in no stream.
    """
    device = settings.device
    cuda = device.type == "cuda"
    return Facts(
        commit=current_commit(),
        txlbench=_version("txlbench"),
        versions={
            "python": platform.python_version(),
            **{name: _version(name) for name in ("torch", "numpy")},
        },
        device=str(device),
        device_name=torch.cuda.get_device_name(device) if cuda else processor(),
        devices=settings.world.size,
        threads=torch.get_num_threads(),
        precision=settings.precision,
        attention=attention,
        corpus=corpus.facts(),
        train_dropped=dropped,
        parameters=sum(weight.numel() for weight in model.parameters()),
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


VALIDATION_STREAMS = 10
"""Of validation while training, as the official code. It decides which checkpoint is best, so it
must not follow `evaluate`, which is no part of a run's identity."""


@dataclass
class TrainingRun:
    """A run that is to be trained, from its last checkpoint if there is one.

    Processes that share it do all alike, each with its rows, and one of them writes.

    Attributes:
        should_stop: asked between steps.
        save_asked: set when a checkpoint is wanted now.
    """

    directory: RunDirectory
    config: RunConfig
    corpus: Corpus
    device: torch.device
    should_stop: Callable[[], bool]
    save_asked: threading.Event
    world: World = ALONE
    state: TrainingState = field(init=False)
    settings: Settings = field(init=False)

    def __post_init__(self) -> None:
        config, train_config = self.config, self.config.train
        model = build_model(config.model, len(self.corpus.vocabulary)).to(self.device)
        if isinstance(model, ArchitectureModel):
            check_architecture(model, len(self.corpus.vocabulary), train_config)
        self.settings = Settings(
            train_config,
            training_span(config),
            self.device,
            resolve_precision(train_config.precision, self.device),
            config.model.n_layer,
            self.world,
        )
        memories = empty_memories(model, train_config, self.settings.span, self.world)
        optimiser = build_optimiser(model.parameters(), train_config)
        average = None if train_config.average_from is None else weight_average(model)
        self.state = TrainingState(model, optimiser, memories, average=average)
        if train_config.compile:
            self.state.forward = compiled_forward(model)
        self.valid = training_regime(config, "valid").model_copy(
            update={"tokens": train_config.eval_tokens, "batch_size": VALIDATION_STREAMS}
        )
        machine = {
            "precision": self.settings.precision,
            "device": self.device.type,
            "devices": self.world.size,
            "threads": torch.get_num_threads(),
        }
        self.checkpointer = Checkpointer(
            self.directory, decisive_settings(config), machine, self.world
        )
        self.began = time.monotonic()
        self.tokens_before = 0
        self.seconds_before = 0.0

    def run(self) -> bool:
        """Trains to the end and sums up; False if asked to stop.

        Raises:
            OSError: if the disk still refuses something at the end.
            Diverged: if the loss is no number, or even the best is far above a uniform guess.
        """
        train_config = self.config.train
        streams = Streams(
            self.corpus.ids("train"),
            train_config.batch_size,
            train_config.tgt_len,
            train_config.stride,
        )
        self.checkpointer.resume(self.state)
        attention = settle_attention(self.state.model, self.config.model, self.settings)
        if self.world.writes:
            self._describe(streams.dropped, attention)
            self._start_clock()
        self.schedule = SaveSchedule(train_config, self.state.progress.step, self.save_asked)
        hooks = Hooks(self._log, self._validate, self._save, self.should_stop, self._should_save)
        on_host = self.state.model.reads_host_ids
        with staged(streams, self.device, on_host) as batches:
            done = train(self.state, batches, self.settings, hooks)
        self.checkpointer.finish(self.state)
        if done:
            self._refuse_explosion()
            if self.world.writes:
                self._summarise()
        return done

    def _refuse_explosion(self) -> None:
        """A training whose best is far above a uniform guess has diverged, though finitely."""
        progress, size = self.state.progress, len(self.corpus.vocabulary)
        if progress.best_loss is not None and is_exploded(progress.best_loss, size):
            raise Diverged(
                f"the best validation loss is {progress.best_loss:.4g} nats, where a uniform guess "
                f"has {math.log(size):.4g}; lower train.lr ({self.config.train.lr:g})"
            )
        exploded = progress.last_loss is not None and is_exploded(progress.last_loss, size)
        if exploded and self.world.writes:
            self.directory.note(
                f"the loss exploded after step {progress.best_step}, whose weights are measured: "
                f"{progress.last_loss:.4g} nats at the last step"
            )

    def _describe(self, dropped: int, attention: AttentionFacts | None) -> None:
        model = self.state.model
        facts = gather_facts(self.corpus, model, self.settings, attention, dropped)
        self.directory.write_facts(facts)
        self.directory.write_tokens(self.corpus.vocabulary.symbols)
        if attention is not None and attention.reason is not None:
            self.directory.note(not_fused(attention.reason))

    def _start_clock(self) -> None:
        """Time goes on from the line that the checkpoint's step logged."""
        progress = self.state.progress
        earlier = [
            line.seconds for line in self.directory.read_timings() if line.step <= progress.step
        ]
        self.seconds_before = earlier[-1] if earlier and progress.step else 0.0
        self.began, self.tokens_before = time.monotonic(), progress.tokens

    def _log(self, line: dict[str, float | int]) -> None:
        self.checkpointer.log(line, self._timing() if "train_loss" in line else None)

    def _timing(self) -> dict[str, float]:
        seconds = time.monotonic() - self.began
        progress = self.state.progress
        return {
            "step": progress.step,
            "time": time.time(),
            "seconds": self.seconds_before + seconds,
            "tokens_per_second": (progress.tokens - self.tokens_before) / seconds,
            "memory_bytes": peak_memory(str(self.device)),
        }

    def _validate(self) -> float:
        ids, depth = self.corpus.ids("valid"), self.config.model.n_layer
        model = self.state.evaluated
        return score(model, ids, self.valid, depth, self.device, world=self.world).loss

    def _should_save(self) -> bool:
        return self.schedule.is_due(self.state.progress.step)

    def _save(self, best: bool) -> None:
        self.checkpointer.save(self.state, best)
        self.schedule.saved(self.state.progress.step)

    def _summarise(self) -> None:
        progress = self.state.progress
        *_, timing = self.directory.read_timings()
        training = TrainingSummary(
            steps=progress.step,
            tokens=progress.tokens,
            targets_trained=progress.targets,
            best_step=progress.best_step,
            best_valid_loss=progress.best_loss,
            final_valid_loss=progress.last_loss,
            seconds=timing.seconds,
            tokens_per_second=timing.tokens_per_second,
        )
        self.directory.write_summary(Summary(schema=Summary.SCHEMA, training=training))


def execute(
    job: Job,
    should_stop: Callable[[], bool],
    save_asked: threading.Event | None = None,
    world: World = ALONE,
) -> RunState:
    """Trains and measures what is missing; returns the state it leaves the run in.

    Where processes share the run, each calls this.

    Args:
        should_stop: asked between steps and between measurements; True leaves a checkpoint and
            the state interrupted.
        save_asked: set from outside when a checkpoint is wanted now; training goes on after it.
    """
    for plugin in job.plugins:
        load_plugin(plugin)
    run = RunDirectory(job.directory)
    config = run.read_config()
    device = torch.device(job.device_of(world.rank))
    corpus = prepare(config.corpus)
    if world.writes:
        run.start()

    def left(state: RunState) -> RunState:
        if world.writes:
            run.set_state(state)
        return state

    if run.read_summary().training is None:
        seed_everything(config.seed)
        asked = save_asked or threading.Event()
        training = TrainingRun(run, config, corpus, device, should_stop, asked, world)
        if not training.run():
            return left(RunState.INTERRUPTED)
        left(RunState.TRAINED)
    complete = measure(run, config, corpus, device, job.evaluations, should_stop, world)
    return left(RunState.FINISHED if complete else RunState.INTERRUPTED)
