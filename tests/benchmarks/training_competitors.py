"""Training steps beside the fastest implementations that install on a CPU, in one call.

python -m tests.benchmarks.training_competitors PYTHON [--sizes small,base] [--dtypes fp32,bf16]
[--threads N] [--rounds N] [--compile]. PYTHON has x-transformers 2.31.10, transformers 5 and
PyTorch of this version. All sides have the suite's allocator settings and take turns:

- x-transformers with memory and rotary positions does the same job with less: no term of the
  scores has positions, and it drops nothing, as both are how it comes. Ours drops at 0.1 as the
  paper's models do, and once nothing.
- transformers' Llama without memory is what PyTorch makes of these sizes; with as much context as
  memory gives, it learns from that context too, at every step.

Prints a Markdown table: tokens a second, and ratios of single rounds as median and quartiles.
"""

import argparse
import statistics
from pathlib import Path

from tests.benchmarks.training import OURS, SIZES, workload
from tests.benchmarks.turns import Side, environments, take_turns

ROOT = Path(__file__).parents[2]
THEIRS = ["-m", "tests.benchmarks.training_torch"]
HEADER = "| size, format, threads | side | tokens/s | ours to it | without dropout | peak MB |"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("python")
    parser.add_argument("--sizes", default="small,base")
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--compile", action="store_true", help="compiled competitors too")
    options = parser.parse_args()
    print(HEADER, "|---|---|---:|---:|---:|---:|", sep="\n", flush=True)
    for size in options.sizes.split(","):
        for dtype in options.dtypes.split(","):
            for cells in rows(size, dtype, options):
                print(f"| {' | '.join(cells)} |", flush=True)


def rows(size, dtype, options):
    environment, _ = environments(options.threads)
    theirs, beside = [options.python, *THEIRS], {**environment, "PYTHONPATH": str(ROOT)}
    sides = [
        (Side("ours", OURS, environment), workload(size, dtype)),
        (Side("ours without dropout", OURS, environment), workload(size, dtype, dropout=0.0)),
        *(
            (Side(name, theirs, beside), asked)
            for name, asked in competitors(size, dtype, options.compile)
        ),
    ]
    turn = take_turns(sides, options.rounds)
    tokens = SIZES[size]["batch"] * SIZES[size]["length"] * SIZES[size]["steps"]
    for side, _ in sides:
        speed = f"{tokens / statistics.median(turn.seconds[side.name]):,.0f}"
        ratios = ["", ""]
        if not side.name.startswith("ours"):
            ratios = [times(turn, ours, side.name) for ours in ("ours", "ours without dropout")]
        peak = f"{side.ask({'work': 'peak_memory'})['value'] / 2**20:,.0f}"
        yield [f"{size}, {dtype}, {options.threads}", side.name, speed, *ratios, peak]
        side.close()


def competitors(size, dtype, compiled):
    """Names and workloads."""
    length, bare = SIZES[size]["length"], workload(size, dtype)
    sides = {
        "x-transformers": {"kind": "x-transformers", "context": length},
        "Llama, no memory": {"kind": "llama", "context": 0},
        "Llama, context instead": {"kind": "llama", "context": length},
    }
    for name, asked in sides.items():
        yield name, {**bare, **asked}
        if compiled:
            yield f"{name}, compiled", {**bare, **asked, "compiled": True}


def times(turn, ours, other):
    low, high = turn.spread(ours, other)
    return f"{turn.ratio(ours, other):.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
