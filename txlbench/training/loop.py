"""The training loop: steps, memory resets, log lines, validations and checkpoints."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from txlbench.config.base import AttentionSpan
from txlbench.config.train import TrainConfig
from txlbench.data.streams import Batch
from txlbench.models.dropout import rows_shared
from txlbench.models.interface import State
from txlbench.models.memory import Memory
from txlbench.training.optimisation import (
    Auxiliary,
    apply_gradients,
    learning_rate,
    scored_loss,
)
from txlbench.training.runtime import autocast, products
from txlbench.training.state import BatchSource, Progress, TrainingState, empty_memories
from txlbench.world import ALONE, World


def with_resets(
    memories: list[State], config: TrainConfig, step: int, world: World = ALONE
) -> list[State]:
    """The memories of step 0, 1, ..., each stream's reset with probability `memory_reset`.

    So short contexts are met in training too.

    Drawn for the whole batch at once, so that `batch_chunk` and processes change no number.

    Args:
        memories: one for each chunk of the batch.
    """
    if not config.memory_reset or step < config.memory_reset_from * config.max_step:
        return memories
    forgetting = torch.rand(config.batch_size) < config.memory_reset
    chunks = forgetting.chunk(config.batch_chunk)
    return [memory.reset(world.own(rows)) for memory, rows in zip(memories, chunks, strict=True)]


class Diverged(Exception):
    """The loss or the gradient is no longer a finite number."""


RANDOM_PARTS = 4
"""Parts of the memory that `random_mem_len` shows so or so many of: few, as each is a shape that a
kernel is compiled for."""


def with_random_length(memories: list[State], config: TrainConfig) -> list[State]:
    """The memories, of which the next step's queries see as much as is drawn for all of them."""
    if not config.random_mem_len:
        return memories
    parts = int(torch.randint(RANDOM_PARTS + 1, ()))
    length = parts * config.memory // RANDOM_PARTS
    return [cast("Memory", memory).seeing(length) for memory in memories]


@dataclass(frozen=True)
class Hooks:
    """Callbacks around the steps.

    Processes that share a run call them alike; what one of them is asked for all do.

    Attributes:
        log: called with a training line every log_interval steps.
        validate: gives the validation loss in nats of `TrainingState.evaluated`.
        save: called after each validation; True if it is the best so far.
        should_stop: asked after every step; True ends the loop after a checkpoint.
        should_save: asked after every step without validation; True for a checkpoint.
    """

    log: Callable[[dict[str, float | int]], None]
    validate: Callable[[], float]
    save: Callable[[bool], None]
    should_stop: Callable[[], bool]
    should_save: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Settings:
    """What stays fixed during a training."""

    train: TrainConfig
    span: AttentionSpan
    device: torch.device
    precision: str
    n_layer: int = 1
    world: World = ALONE

    @property
    def average_after(self) -> float:
        """The step after which weights are averaged."""
        return (self.train.average_from or 0.0) * self.train.max_step


def train(state: TrainingState, batches: BatchSource, settings: Settings, hooks: Hooks) -> bool:
    """Trains from `state.progress.step` to max_step; False if it was asked to stop before.

    Raises:
        Diverged: at the first step whose loss or gradient is not finite.
    """
    progress, config, world = state.progress, settings.train, settings.world
    state.model.train()
    while progress.step < config.max_step:
        batch = batches[progress.step]
        if batch.first:
            with autocast(settings.precision, settings.device):
                state.memories = empty_memories(state.model, config, settings.span, world)
        state.memories = with_resets(state.memories, config, progress.step, world)
        state.memories = with_random_length(state.memories, config)
        with products(settings.precision), _masks(world, progress.step):
            _step(state, batch, settings)
        if progress.step % config.log_interval == 0 or progress.step == config.max_step:
            hooks.log(_log_line(progress, config))
        validated = progress.step % config.eval_interval == 0 or progress.step == config.max_step
        if validated:
            _validate(state, hooks)
        stop, save = world.agree(hooks.should_stop(), not validated and hooks.should_save())
        stopping = stop and progress.step < config.max_step
        if not validated and (stopping or save):
            hooks.save(False)
        if stopping:
            return False
    return True


@contextmanager
def _masks(world: World, step: int) -> Iterator[None]:
    """Inside, each process draws the dropout masks of its own rows.

    Those that this package draws are the same at whatever number of processes. Those that PyTorch
    draws (on a CUDA device, compiled, in other people's models) are seeded by step and process.
    Random sources are in the end where they were, common to all processes.
    """
    if world.size == 1:
        yield
        return
    with torch.random.fork_rng(devices=[]), rows_shared(world.rank, world.size):
        torch.manual_seed(int(torch.randint(2**62, ())) + step * world.size + world.rank)
        yield


def _step(state: TrainingState, batch: Batch, settings: Settings) -> None:
    """One optimiser step on one batch, in `batch_chunk` parts whose losses add up.

    Dropout masks are drawn part by part, and so differ from those of the batch as a whole. Where
    processes share the run each has its rows of every part.
    """
    config, progress = settings.train, state.progress
    count = batch.scored * len(batch.targets)
    total = torch.zeros((), device=settings.device)
    auxiliary = Auxiliary.at(config, settings.n_layer, progress.step)
    chunks = _chunks(batch, settings, state.model.reads_host_ids)
    for index, (tokens, targets) in enumerate(chunks):
        with autocast(settings.precision, settings.device):
            losses, state.memories[index] = scored_loss(
                state.model,
                tokens,
                targets,
                batch.scored,
                state.memories[index],
                auxiliary,
                state.forward,
            )
        total += losses.scored.detach()
        loss = (losses.scored + losses.auxiliary) / count
        backward: Callable[[], object] = loss.backward
        if index + 1 < config.batch_chunk:
            backward()
        else:
            settings.world.sum_gradients(state.model.parameters(), backward, total)
    rate = learning_rate(config, progress.step + 1)
    norm_on_device = apply_gradients(state.optimiser, config, rate)
    loss_sum, norm = _read(total, norm_on_device)
    if not math.isfinite(loss_sum):
        raise Diverged(f"the loss is {loss_sum} at step {progress.step + 1}")
    if not math.isfinite(norm):
        raise Diverged(f"the gradient's norm is {norm} at step {progress.step + 1}")
    progress.step += 1
    if state.average is not None and progress.step > settings.average_after:
        state.average.update_parameters(state.model)
    progress.tokens += batch.tokens.numel()
    progress.targets += count
    progress.loss_sum += loss_sum
    progress.loss_targets += count
    progress.norm_sum += norm
    progress.norm_steps += 1


def _read(*scalars: Tensor) -> list[float]:
    """The numbers, read together: each reading makes the host wait for the device."""
    read: list[float] = torch.stack([each.double() for each in scalars]).tolist()
    return read


def _chunks(batch: Batch, settings: Settings, on_host: bool) -> Any:
    """The rows of this process in each of the `batch_chunk` parts of a batch.

    Args:
        on_host: for a model that reads ids there; else they are on the device.
    """
    chunks, world = settings.train.batch_chunk, settings.world
    device = torch.device("cpu") if on_host else settings.device
    tokens, targets = (
        map(world.own, rows.to(device, non_blocking=True).chunk(chunks))
        for rows in (batch.tokens, batch.targets)
    )
    return zip(tokens, targets, strict=True)


def _log_line(progress: Progress, config: TrainConfig) -> dict[str, float | int]:
    """The means since the last log line; resets the sums."""
    line: dict[str, float | int] = {
        "step": progress.step,
        "tokens": progress.tokens,
        "targets": progress.targets,
        "train_loss": progress.loss_sum / progress.loss_targets,
        "lr": learning_rate(config, progress.step),
        "grad_norm": progress.norm_sum / progress.norm_steps,
    }
    progress.loss_sum, progress.loss_targets = 0.0, 0
    progress.norm_sum, progress.norm_steps = 0.0, 0
    return line


def _validate(state: TrainingState, hooks: Hooks) -> None:
    """Validates, remembers the best, and saves."""
    progress = state.progress
    state.evaluated.eval()
    loss = hooks.validate()
    state.evaluated.train()
    if not math.isfinite(loss):
        raise Diverged(f"the validation loss is {loss} at step {progress.step}")
    progress.last_loss = loss
    improved = progress.best_loss is None or loss < progress.best_loss
    if improved:
        progress.best_loss, progress.best_step = loss, progress.step
    hooks.log({"step": progress.step, "tokens": progress.tokens, "valid_loss": loss})
    hooks.save(improved)
