"""The process of one row of `shipped_shapes`: python -m tests.benchmarks.shipped_shapes_worker.

Reads its job as JSON from standard input: a configuration, the size of the vocabulary, the steps to
take, and when the process was started. Prints the median of the later three quarters of the steps.
"""

import json
import sys
import time
from contextlib import nullcontext
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from tests.benchmarks.shipped_shapes import step_flops
from txlbench.commands.bench_worker import DTYPES, SQUARE, matrix_product, timed
from txlbench.config.run_config import RunConfig
from txlbench.data.prepare import find_prepared
from txlbench.data.streams import Streams
from txlbench.machine import peak_memory
from txlbench.runs.speed_probe import ProbeJob
from txlbench.runs.speed_probe_worker import SyntheticBatches, training_state
from txlbench.runs.train_run import Hooks, train
from txlbench.seeding import seed_everything

CPU = torch.device("cpu")


def main():
    asked = json.loads(sys.stdin.readline())
    config, size = RunConfig.model_validate(asked["config"]), asked["vocabulary_size"]
    seed_everything(config.seed)
    batches = batches_of(config, size)
    state, settings = training_state(ProbeJob(config=config, vocabulary_size=size), CPU)
    built = time.time() - asked["began"]
    product = matrix_product(DTYPES[settings.precision], CPU)
    seconds, products, begin = [], [], time.perf_counter()

    def after_step():
        nonlocal begin
        seconds.append(time.perf_counter() - begin)
        products.append(timed(product, CPU))
        begin = time.perf_counter()
        return len(seconds) == asked["steps"]

    hooks = Hooks(ignore, lambda: 0.0, ignore, after_step)
    recorder = profile(activities=[ProfilerActivity.CPU]) if asked["profile"] else nullcontext()
    with recorder:
        train(state, batches, settings, hooks)
    step = median(seconds[len(seconds) // 4 :])
    found = {
        "start_up": built + max(0.0, seconds[0] - step),
        "step": step,
        "flops": step_flops(config, size),
        "product_rate": 2 * SQUARE**3 / median(products),
        "peak": peak_memory("cpu"),
    }
    if asked["profile"]:
        table = recorder.key_averages().table(sort_by="self_cpu_time_total", row_limit=25)
        found["profile"] = table
    print(json.dumps(found))


def batches_of(config, size):
    """Of the corpus where it is prepared, as a run reads it; else of made-up tokens."""
    corpus, train = find_prepared(config.corpus), config.train
    if corpus is None:
        return SyntheticBatches(ProbeJob(config=config, vocabulary_size=size))
    ids = corpus.ids("train")
    return Streams(ids, train.batch_size, train.tgt_len, train.stride)


def ignore(_):
    """Neither logs nor saves."""


if __name__ == "__main__":
    main()
