"""How fast every shipped experiment trains here, beside this machine's matrix products.

python -m tests.benchmarks.shipped_shapes [EXPERIMENT | EXPERIMENT:ROW ...] [--threads N]
[--steps N] [--gflops N] [--precision P] [--profile]. Without names: the first row of every file of
experiments/, and `MORE`.

Each row has a process of its own that starts as a run does, reads its corpus where that is
prepared (else made-up tokens), and takes training steps. A product of two matrices is timed after
every step: the share is the necessary FLOPs a second of the median step over that of the products.
A row whose step takes more than `--gflops` has a smaller batch down to a thousand tokens, then
fewer layers down to two, then a smaller batch again; it says so. Prints a Markdown table; with
--profile the operations that each row spends its time in.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from txlbench.config.counting import train_flops
from txlbench.machine import worker_environment
from txlbench.runs.plan import Request, open_experiment, vocabulary_size

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
MORE = (
    "quick:Vaswani with half loss",
    *(f"words:{name}" for name in ("LSTM", "QRNN")),
    *(f"recurrent:{name}" for name in ("LSTM", "QRNN", "GLA", "Gated DeltaNet")),
    "architectures:Llama",
)
TOKENS = 1000
"""A batch is made smaller down to so many first: with fewer the optimiser would be measured."""
HEADS = ("experiment, row", "layers x width, batch x tokens + memory", "tokens/s", "share of rate")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--gflops", type=float, default=120)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    first = [path.stem for path in sorted(EXPERIMENTS.glob("*.yaml"))]
    print(f"| {' | '.join(HEADS)} | start-up s | MB |", "|---|---|---:|---:|---:|---:|", sep="\n")
    known = {}
    for name in options.names or [*first, *MORE]:
        row, config, size = opened(name, options.precision)
        smaller = shrunk(config, size, options.gflops * 1e9)
        shape = f"{smaller.model} {smaller.train.tgt_len} {smaller.train.memory} {size}"
        found = known[shape] = known.get(shape) or measured(smaller, size, options)
        print(f"| {' | '.join(cells(row, config, smaller, found))} |", flush=True)
        if options.profile:
            print(found["profile"], flush=True)


def opened(name, precision):
    """A row's name, its configuration and its vocabulary's size."""
    file, _, label = name.partition(":")
    plan = open_experiment(Request(EXPERIMENTS / f"{file}.yaml"))[2]
    run = next(run for run in plan if label in ("", *run.labels))
    train = run.config.train.model_copy(update={"precision": precision})
    config = run.config.model_copy(update={"train": train})
    return f"{file}, {run.labels[0]}", config, vocabulary_size(run)


def step_flops(config, size):
    return train_flops(config, size) / config.train.max_step


def shrunk(config, size, flops):
    """The configuration with a step of at most so many operations, as far as that goes."""
    while step_flops(config, size) > flops:
        train, model = config.train, config.model
        deep = model.n_layer > 3 and train.batch_size * train.tgt_len < 2 * TOKENS
        if not deep and train.batch_size == 1:
            break
        section, key = ("model", "n_layer") if deep else ("train", "batch_size")
        before = getattr(config, section)
        smaller = before.model_copy(update={key: getattr(before, key) // 2})
        config = config.model_copy(update={section: smaller})
    return config


def measured(config, size, options):
    """What `shipped_shapes_worker` finds in a process of its own."""
    job = {
        "config": config.model_dump(mode="json"),
        "vocabulary_size": size,
        "steps": options.steps,
        "profile": options.profile,
        "began": time.time(),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.shipped_shapes_worker"],
        input=json.dumps(job) + "\n",
        capture_output=True,
        text=True,
        env=worker_environment(options.threads, os.environ),
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def cells(row, config, smaller, found):
    train, tokens = smaller.train, smaller.train.batch_size * smaller.train.tgt_len
    share = found["flops"] / found["step"] / found["product_rate"]
    return [
        row,
        f"{of(smaller.model.n_layer, config.model.n_layer)} x {smaller.model.d_model}, "
        f"{of(train.batch_size, config.train.batch_size)} x {train.tgt_len} + {train.memory}",
        f"{tokens / found['step']:,.0f}",
        f"{share:.2f}",
        f"{found['start_up']:.1f}",
        f"{found['peak'] / 2**20:,.0f}",
    ]


def of(taken, whole):
    return f"{taken}" if taken == whole else f"{taken} (of {whole})"


if __name__ == "__main__":
    main()
