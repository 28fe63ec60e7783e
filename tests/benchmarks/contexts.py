"""Losses at ten contexts from one pass over the windows, beside one evaluation a context.

python -m tests.benchmarks.contexts [--rounds N] [--threads N]. Both by turns in one
process, with the same model and positions; prints the median ratio with the quartiles of
single rounds.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from tests.benchmarks.turns import Turn
from txlbench.config.benchmarks import CONTEXTS, SIZES, VOCABULARY
from txlbench.evaluation.context_losses import PartialLosses, context_losses
from txlbench.evaluation.context_reading import choose_reading
from txlbench.models.factory import build_model

POSITIONS = 60
CPU = torch.device("cpu")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    turn = measure(options.rounds, options.threads)
    low, high = turn.spread("one pass", "one a context")
    ratio = turn.ratio("one pass", "one a context")
    print(f"ten contexts: {ratio:.2f}x ({low:.2f} to {high:.2f}) of one evaluation a context")


def measure(rounds, threads):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    config = SIZES["small"].model
    model = build_model(config, VOCABULARY).eval()
    positions = CONTEXTS[-1] + 32 * np.arange(POSITIONS, dtype=np.int64)
    ids = np.random.default_rng(3).integers(VOCABULARY, size=int(positions[-1]) + 1)

    def losses(contexts):
        with (
            tempfile.TemporaryDirectory() as folder,
            PartialLosses(Path(folder) / "losses.part") as kept,
        ):
            reading = choose_reading(config, contexts[-1], CPU)
            at = np.array(contexts, dtype=np.int64)
            return context_losses(model, ids, at, positions, reading, CPU, kept, lambda *_: None)

    def one_pass():
        return losses(CONTEXTS)

    def one_a_context():
        return np.concatenate([losses((context,)) for context in CONTEXTS])

    ways = {"one pass": one_pass, "one a context": one_a_context}
    found = [way() for way in ways.values()]
    np.testing.assert_allclose(*found, rtol=0, atol=1e-4)
    seconds = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            begin = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - begin)
    return Turn(seconds, {})


if __name__ == "__main__":
    main()
