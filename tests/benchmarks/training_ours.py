"""The suite's side of `training`: python -m tests.benchmarks.training_ours."""

import resource
from types import SimpleNamespace

import torch

from tests.benchmarks.answering import answer
from txlbench import seeding
from txlbench.config.base import AttentionSpan
from txlbench.config.model import ModelConfig
from txlbench.config.train import TrainConfig
from txlbench.models.factory import build_model
from txlbench.training import loop
from txlbench.training.optimisation import build_optimiser
from txlbench.training.runtime import products
from txlbench.training.state import TrainingState, compiled_forward, empty_memories

CPU = torch.device("cpu")


def main():
    answer({"train": train, "peak_memory": lambda: peak_memory})


def train(model, vocabulary, batch, length, steps, dtype, device=CPU, compiled=False):
    """Steps as the training loop takes them, with a full memory."""
    seeding.seed_everything(1)
    config = TrainConfig(
        tgt_len=length,
        mem_len=length,
        batch_size=batch,
        max_step=10**6,
        lr=2.5e-4,
        compile=compiled,
    )
    network = build_model(ModelConfig(**model), vocabulary).to(device).train()
    span = AttentionSpan(mem_len=length)
    optimiser = build_optimiser(network.parameters(), config)
    state = TrainingState(network, optimiser, empty_memories(network, config, span))
    if compiled:
        state.forward = compiled_forward(network)
    settings = loop.Settings(config, span, device, dtype, model["n_layer"])
    tokens, targets = torch.randint(vocabulary, (2, batch, length)).to(device)
    step = SimpleNamespace(tokens=tokens, targets=targets, scored=length, first=False)
    loop._step(state, step, settings)  # leaves a full memory

    def run():
        for _ in range(steps):
            before = state.progress.loss_sum
            with products(dtype):
                loop._step(state, step, settings)
        return (state.progress.loss_sum - before) / tokens.numel()

    return run


def peak_memory():
    """The largest resident set of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
