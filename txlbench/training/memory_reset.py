"""Memory resets: streams that forget in training, so that short contexts are met there."""

import torch

from txlbench.config.train import TrainConfig
from txlbench.models.interface import State


def with_resets(memories: list[State], config: TrainConfig, step: int) -> list[State]:
    """The memories of step 0, 1, ... after each stream has forgotten with its probability.

    Drawn for the whole batch at once, so that `batch_chunk` changes no number.

    Args:
        memories: one for each chunk of the batch.
    """
    if not config.memory_reset or step < config.memory_reset_from * config.max_step:
        return memories
    forgetting = torch.rand(config.batch_size) < config.memory_reset
    chunks = forgetting.chunk(config.batch_chunk)
    return [memory.forget(rows) for memory, rows in zip(memories, chunks, strict=True)]
