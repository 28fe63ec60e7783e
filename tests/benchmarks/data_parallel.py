"""Speed of two processes that share a training over one that has it alone, one thread each.

By turns in one pair of processes: both train, then the first alone while the second sleeps. Prints
the ratio of tokens a second, its median and quartiles over the turns. On a quiet machine of two
cores, in under five minutes: `python -m tests.benchmarks.data_parallel`.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time

SIZES = {
    "small (4 x 256, L = M = 128, batch 16)": (
        {"n_layer": 4, "d_model": 256, "n_head": 8, "d_inner": 1024},
        {"tgt_len": 128, "mem_len": 128, "batch_size": 16},
    ),
    "base (12 x 512, L = M = 512, batch 2)": (
        {"n_layer": 12, "d_model": 512, "n_head": 8, "d_inner": 2048},
        {"tgt_len": 512, "mem_len": 512, "batch_size": 2},
    ),
}
PRECISIONS = ("fp32", "bf16")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    if "RANK" in os.environ:
        measure(options)
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    from txlbench.machine import worker_environment

    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    environment = {**worker_environment(1, os.environ), **place, "WORLD_SIZE": "2"}
    command = [sys.executable, "-m", "tests.benchmarks.data_parallel", *sys.argv[1:]]
    ranks = [subprocess.Popen(command, env={**environment, "RANK": str(rank)}) for rank in range(2)]
    sys.exit(max(rank.wait() for rank in ranks))


def measure(options):
    import torch

    from txlbench.world import ALONE, join

    world = join(torch.device("cpu"))
    for size, (model, settings) in SIZES.items():
        for precision in PRECISIONS:
            shared = training(model, {**settings, "precision": precision}, world)
            alone = training(model, {**settings, "precision": precision}, ALONE)
            steps = agreed_steps(world, shared, options.seconds)
            if world.writes:
                alone(2)
            ratios = []
            for _ in range(options.turns):
                together = seconds(shared, steps)
                apart = seconds(alone, steps) if world.writes else 0.0
                world.tell("")  # the other sleeps until then
                ratios.append(apart / together)
            if world.writes:
                report(size, precision, steps, ratios)
    world.leave()


def training(model, settings, world):
    """A function that trains a given number of further steps."""
    from dataclasses import replace

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

    given = {"max_step": 10**6, "log_interval": 10**6, "eval_interval": 10**6, **settings}
    run = RunConfig.model_validate(
        {"corpus": "enwiki-sample", "model": {**model, "dropout": 0.1}, "train": given}
    )
    seed_everything(1)
    network, config = build_model(run.model, 204), run.train
    memories = empty_memories(network, config, training_span(run), world)
    state = TrainingState(network, build_optimiser(network.parameters(), config), memories)
    ids = np.random.default_rng(1).integers(204, size=2**20).astype(np.uint8)
    batches = Streams(ids, config.batch_size, config.tgt_len, config.stride)
    settings = Settings(
        config, training_span(run), torch.device("cpu"), config.precision, run.model.n_layer, world
    )
    hooks = Hooks(lambda _: None, lambda: 0.0, lambda _: None, lambda: False)

    def go_on(steps):
        until = state.progress.step + steps

        def over():
            return state.progress.step >= until

        train(state, batches, settings, replace(hooks, should_stop=over))

    return go_on


def agreed_steps(world, train, turn):
    """The steps of a turn of about `turn` seconds, after two of warm-up."""
    train(2)
    return int(world.tell(str(max(2, round(turn / (seconds(train, 2) / 2))))))


def seconds(train, steps):
    begin = time.perf_counter()
    train(steps)
    return time.perf_counter() - begin


def report(size, precision, steps, ratios):
    low, median, high = statistics.quantiles(ratios, n=4)
    print(
        f"{size}, {precision}: two processes over one {median:.2f} ({low:.2f} to {high:.2f}), "
        f"{len(ratios)} turns of {steps} steps",
        flush=True,
    )


if __name__ == "__main__":
    main()
