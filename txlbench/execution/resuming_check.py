"""A training that was stopped and resumed from its checkpoint, against one that went on."""

import tempfile
from pathlib import Path

import numpy as np
import torch

from txlbench.config.run import RunConfig
from txlbench.data.streams import Streams
from txlbench.execution.small import STEPS, VOCABULARY
from txlbench.models.factory import build_model
from txlbench.seeding import seed_everything
from txlbench.training import checkpoint
from txlbench.training.averaging import WeightAverage
from txlbench.training.loop import Hooks, Settings, train
from txlbench.training.optimisation import build_optimiser
from txlbench.training.state import TrainingState, empty_memories, training_view


def resumed(config: RunConfig) -> float:
    """The largest difference of a weight after `max_step` steps of a small configuration."""
    whole = _state(config)
    _train(config, whole, STEPS)
    first = _state(config)
    _train(config, first, STEPS // 2)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "last.pt"
        checkpoint.save_last(path, first, 0)
        second = _state(config)
        checkpoint.restore(checkpoint.load(path), second)
    _train(config, second, STEPS)
    mine, other = whole.model.state_dict(), second.model.state_dict()
    return max(
        (float((mine[name] - other[name]).abs().max()) for name in mine if mine[name].numel()),
        default=0.0,
    )


def _state(config: RunConfig) -> TrainingState:
    seed_everything(config.seed)
    model = build_model(config.model, VOCABULARY)
    optimiser = build_optimiser(model.parameters(), config.train)
    average = None if config.train.average_from is None else WeightAverage(model)
    memories = empty_memories(model, config.train, training_view(config))
    return TrainingState(model, optimiser, memories, average=average)


def _train(config: RunConfig, state: TrainingState, until: int) -> None:
    """Goes on to step `until`; validation is left out, as it changes nothing."""
    ids = np.random.default_rng(1).integers(VOCABULARY, size=200)
    train_config = config.train
    streams = Streams(ids, train_config.batch_size, train_config.tgt_len, train_config.stride)
    settings = Settings(
        train_config, training_view(config), torch.device("cpu"), "fp32", config.model.n_layer
    )
    hooks = Hooks(
        log=lambda _: None,
        validate=lambda: 0.0,
        save=lambda _: None,
        should_stop=lambda: state.progress.step >= until,
    )
    train(state, streams, settings, hooks)
