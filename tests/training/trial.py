"""A tiny training: configuration, text and state that the tests of this folder share."""

from dataclasses import dataclass, field

import numpy as np
import torch

from txlbench.config.measurements import training_span
from txlbench.config.run_config import RunConfig
from txlbench.data.streams import Streams
from txlbench.models.factory import build_model
from txlbench.seeding import seed_everything
from txlbench.training.loop import Hooks, Settings, train
from txlbench.training.optimisation import build_optimiser
from txlbench.training.state import TrainingState, empty_memories

CPU = torch.device("cpu")
VOCABULARY = 11
MODEL = {"n_layer": 2, "d_model": 16, "n_head": 2, "d_inner": 24, "dropout": 0.0}
TRAIN = {"tgt_len": 6, "batch_size": 4, "max_step": 6, "lr": 0.01, "precision": "fp32"}


def config(model=None, **train):
    """A run's configuration over small defaults."""
    sections = {"model": {**MODEL, **(model or {})}, "train": {**TRAIN, **train}}
    return RunConfig.model_validate({"corpus": "enwiki-sample", **sections})


def text(count=400, seed=3):
    return np.random.default_rng(seed).integers(VOCABULARY, size=count).astype(np.uint8)


def streams(run, ids=None):
    train = run.train
    ids = text() if ids is None else ids
    return Streams(ids, train.batch_size, train.tgt_len, train.stride)


def state_of(run, dtype=torch.float32):
    """A seeded model with optimiser and empty memories."""
    seed_everything(run.seed)
    model = build_model(run.model, VOCABULARY).to(dtype)
    optimiser = build_optimiser(model.parameters(), run.train)
    return TrainingState(model, optimiser, empty_memories(model, run.train, training_span(run)))


def settings_of(run):
    return Settings(run.train, training_span(run), CPU, run.train.precision)


@dataclass
class Recorder:
    """Hooks that note what the loop does, in order.

    Attributes:
        losses: what validations give, one after the other, the last one for ever.
        stop_at: `should_stop` is True from this call on.
    """

    losses: tuple = (2.0,)
    stop_at: int | None = None
    lines: list = field(default_factory=list)
    events: list = field(default_factory=list)
    calls: int = 0
    validations: int = 0

    def hooks(self, state):
        def log(line):
            self.lines.append(dict(line))
            self.events.append("log" if "train_loss" in line else "valid line")

        def validate():
            assert not state.evaluated.training
            self.events.append("validate")
            self.validations += 1
            return self.losses[min(self.validations, len(self.losses)) - 1]

        def save(best):
            self.events.append(("save", state.progress.step, best))

        def should_stop():
            self.calls += 1
            return self.stop_at is not None and self.calls >= self.stop_at

        return Hooks(log, validate, save, should_stop)

    @property
    def training(self):
        return [line for line in self.lines if "train_loss" in line]

    @property
    def saves(self):
        return [event[1:] for event in self.events if event[0] == "save"]


def trained(run, recorder=None, dtype=torch.float32, ids=None):
    """The state after a training of `run`."""
    state = state_of(run, dtype)
    train(state, streams(run, ids), settings_of(run), (recorder or Recorder()).hooks(state))
    return state


def weights(state):
    return dict(state.model.named_parameters())
