"""Training, evaluation and generation, quiet and beside processes that keep the cores busy.

python -m tests.benchmarks.under_load [--rounds N] [--threads N] [--busy N] [--settings A,B].

A setting is a process of its own: `ours` has what the suite gives its processes, `default` the same
without its setting of idle OpenMP threads, and NAME=VALUE (joined by +) adds variables to
`default`. All settings take turns at each work, quiet and beside the busy processes, which are
stopped in between. Prints rounds a second, and the share of the quiet speed that is kept.
"""

import argparse
import signal
import statistics
import subprocess
import sys
import time

from tests.benchmarks.turns import Side, environments

MODEL = {"n_layer": 4, "d_model": 128, "n_head": 4, "d_head": 32, "d_inner": 512}
VOCABULARY = 205
WORKS = {
    "training": {"work": "train", "batch": 8, "length": 32, "steps": 2, "dtype": "fp32"},
    "evaluation": {"work": "evaluate", "batch": 10, "length": 64, "mem_len": 64, "segments": 4},
    "generation": {"work": "generate", "mem_len": 64, "tokens": 40},
}
LONGEST, FEWEST = 100, 3
"""Seconds for one work, after which no more rounds are begun; rounds that are made in any case."""
NEEDED = 0.4
"""Share of the quiet speed that every work is to keep."""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--busy", type=int, default=2, help="busy processes")
    parser.add_argument("--settings", default="default,ours")
    parser.add_argument("--side", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        return serve()
    names = options.settings.split(",")
    sides = [Side(name, COMMAND, environment(name, options.threads)) for name in names]
    load = Load(options.busy)
    try:
        for name, work in WORKS.items():
            for line in lines(name, work, sides, load, options.rounds):
                print(line, flush=True)
    finally:
        load.close()
        for side in sides:
            side.close()


COMMAND = [sys.executable, "-m", "tests.benchmarks.under_load", "--side"]


def environment(setting, threads):
    """Variables of the process that a setting is measured in."""
    ours, _ = environments(threads, evaluates=True)
    if setting == "ours":
        return ours
    bare = {name: value for name, value in ours.items() if name not in SPINNING}
    if setting == "default":
        return bare
    return bare | dict(pair.split("=", 1) for pair in setting.split("+"))


SPINNING = ("GOMP_SPINCOUNT", "KMP_BLOCKTIME", "OMP_WAIT_POLICY")


class Load:
    """Processes that compute all the time, while they are let."""

    def __init__(self, number):
        command = [sys.executable, "-c", "while True: pass"]
        self.processes = [subprocess.Popen(command) for _ in range(number)]
        self.send(signal.SIGSTOP)

    def send(self, number):
        for process in self.processes:
            process.send_signal(number)
        time.sleep(0.1)

    def close(self):
        for process in self.processes:
            process.kill()
            process.wait()


def lines(name, work, sides, load, rounds):
    """The speed of each side at one work, quiet and loaded, by turns."""
    workload = {**work, "model": MODEL, "vocabulary": VOCABULARY}
    seconds = {(side.name, busy): [] for side in sides for busy in (False, True)}
    for side in sides:
        side.ask(workload)  # warm-up
    end = time.monotonic() + LONGEST
    for number in range(rounds):
        if number >= FEWEST and time.monotonic() > end:
            break
        for busy in (False, True):
            load.send(signal.SIGCONT if busy else signal.SIGSTOP)
            for side in sides:
                seconds[side.name, busy].append(side.ask(workload)["seconds"])
    load.send(signal.SIGSTOP)
    for side in sides:
        quiet, loaded = (1 / statistics.median(seconds[side.name, busy]) for busy in (False, True))
        kept = loaded / quiet
        verdict = "" if kept >= NEEDED else f" (under {NEEDED})"
        speeds = f"quiet {quiet:.2f}, loaded {loaded:.2f} rounds/s"
        yield f"{name}, {side.name}: {speeds}, kept {kept:.2f}{verdict}"


def serve():
    """Does the works that it is asked for, as the suite does them."""
    import torch

    from tests.benchmarks.answering import answer
    from tests.benchmarks.training_ours import train
    from txlbench.config.base import AttentionSpan
    from txlbench.config.model import ModelConfig
    from txlbench.evaluation.generation import Sampling
    from txlbench.models.factory import build_model

    def build(model, vocabulary):
        torch.manual_seed(1)
        return build_model(ModelConfig(encoding="xl", **model), vocabulary).eval()

    def fresh(network, batch, mem_len):
        span = AttentionSpan(mem_len=mem_len)
        return network.evaluation_state(network.initial_state(batch, span))

    def evaluate(batch, length, mem_len, segments, model, vocabulary):
        network = build(model, vocabulary)
        tokens = torch.randint(vocabulary, (batch, length * segments + 1))

        @torch.inference_mode()
        def run():
            total, state = 0.0, fresh(network, batch, mem_len)
            for start in range(0, length * segments, length):
                hidden, state = network(tokens[:, start : start + length], state)
                targets = tokens[:, start + 1 : start + length + 1]
                total += float(network.losses(hidden, targets).mean())
            return total / segments

        return run

    def generate(mem_len, tokens, model, vocabulary):
        network = build(model, vocabulary)
        generator, sampling = torch.Generator().manual_seed(1), Sampling(top_k=40)

        @torch.inference_mode()
        def run():
            state = fresh(network, 1, mem_len)
            token = torch.zeros(1, 1, dtype=torch.long)
            for _ in range(tokens):
                hidden, state = network(token, state)
                log_probs = network.log_probs(hidden[:, -1])
                token = sampling.draw(log_probs, [generator])
            return float(log_probs.max())

        return run

    answer({"train": train, "evaluate": evaluate, "generate": generate})


if __name__ == "__main__":
    main()
