"""Training steps beside transformers' TransfoXL of the same shapes.

python -m tests.benchmarks.training REFERENCE_PYTHON [--sizes small,base] [--rounds N].
The reference runs once as it comes and once with the suite's allocator settings. Prints tokens a
second, ratios of single rounds as median and quartiles, and the peak memory of each process.
"""

import argparse
import statistics
import sys

from tests.benchmarks.turns import Side, environments, take_turns

SIZES = {
    "small": {
        "model": {"n_layer": 4, "d_model": 256, "n_head": 4, "d_head": 64, "d_inner": 1024},
        "batch": 16,
        "length": 128,
        "steps": 2,
    },
    "base": {
        "model": {"n_layer": 12, "d_model": 512, "n_head": 8, "d_head": 64, "d_inner": 2048},
        "batch": 2,
        "length": 512,
        "steps": 1,
    },
}
REFERENCE = ["-m", "tests.benchmarks.training_reference"]
OURS = [sys.executable, "-m", "tests.benchmarks.training_ours"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("reference_python")
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=["seconds", "cpu"], default="seconds")
    options = parser.parse_args()
    for size in options.sizes.split(","):
        for line in lines(size, options):
            print(line, flush=True)


def lines(size, options):
    """Every side in a process of its own, so that each has its own peak of memory."""
    ours, plain = environments(options.threads)
    reference = [options.reference_python, *REFERENCE]
    sides = [
        (Side("fp32", OURS, ours), workload(size, "fp32")),
        (Side("bf16", OURS, ours), workload(size, "bf16")),
        (Side("reference", reference, plain), workload(size, "fp32")),
        (Side("reference, allocator set", reference, ours), workload(size, "fp32")),
    ]
    turn = take_turns(sides, options.rounds, options.clock)
    tokens = SIZES[size]["batch"] * SIZES[size]["length"] * SIZES[size]["steps"]
    for side, _ in sides:
        peak = side.ask({"work": "peak_memory"})["value"] / 2**20
        speed = tokens / statistics.median(turn.seconds[side.name])
        ratios = [ratio(turn, side.name, name) for name in list(turn.seconds)[2:]]
        yield f"{size}, {side.name}: {speed:,.0f} tokens/s, {', '.join(ratios)}, {peak:,.0f} MB"
        side.close()


def workload(size, dtype, **model):
    sizes = SIZES[size]
    model = {**sizes["model"], "dropout": 0.1, **model}
    return {"work": "train", **sizes, "model": model, "vocabulary": 205, "dtype": dtype}


def ratio(turn, side, reference):
    low, high = turn.spread(side, reference)
    return f"{turn.ratio(side, reference):.2f}x ({low:.2f} to {high:.2f}) of {reference}"


if __name__ == "__main__":
    main()
