"""Predicted against measured: memory of a training, and its time as `--probe` tells it.

python -m tests.benchmarks.predictions [--seconds 10]. Memory: the growth of a
process's peak over three steps. Time: the probe of a shape beside a run of 40 steps of the loop
that follows it. A few minutes; other work on the machine distorts the times.
"""

import argparse

from tests.config import test_memory_use as shapes
from txlbench.config.memory_use import BASELINE, training_memory
from txlbench.runs.speed_probe import ProbeJob

TIMED = ("small", "small, bf16", "small, no memory", "lstm", "base")
STEPS = 40


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    print("| shape | memory predicted | measured | error |\n|---|---:|---:|---:|")
    for name, (model, train, vocabulary, more) in shapes.MEASURED.items():
        asked = shapes.config(model, train, **{"precision": "fp32", **more})
        job = ProbeJob(config=asked, vocabulary_size=vocabulary, steps=3, seconds=60)
        found = shapes.probed(job)
        predicted = training_memory(asked, vocabulary, found.precision).total - BASELINE
        error, measured = predicted / found.grown_bytes - 1, found.grown_bytes
        print(f"| {name} | {predicted / 1e6:.0f} MB | {measured / 1e6:.0f} MB | {error:+.0%} |")
    print("\n| shape | step predicted | measured | error |\n|---|---:|---:|---:|")
    for name in TIMED:
        model, train, vocabulary, more = shapes.MEASURED[name]
        asked = shapes.config(model, train, **{"precision": "fp32", **more})
        job = ProbeJob(config=asked, vocabulary_size=vocabulary, seconds=options.seconds)
        predicted = shapes.probed(job).step_seconds
        longer = job.model_copy(update={"seconds": 600.0, "steps": STEPS})
        measured = shapes.probed(longer).step_seconds
        error = predicted / measured - 1
        print(f"| {name} | {predicted:.3f} s | {measured:.3f} s | {error:+.0%} |", flush=True)


if __name__ == "__main__":
    main()
