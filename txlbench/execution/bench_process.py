"""The process that a workload of `bench` gets, so that its peak memory is its own.

`python -m txlbench.execution.bench_process`, with the workload as JSON on standard input.
"""

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from txlbench.config.benchmarks import Workload
from txlbench.execution.bench_work import prepared
from txlbench.execution.devices import set_allocator
from txlbench.seeding import seed_everything

SQUARE = 2048
"""Rows and columns of the matrices whose product measures the machine."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def measure(workload: Workload, device: torch.device, rounds: int) -> dict[str, Any]:
    """Tokens a second over `rounds` repetitions, and the machine's rate between them.

    The first two repetitions warm up: they allocate, compile, and fill the memory.
    """
    seed_everything(1)
    product = matrix_product(DTYPES[workload.dtype], device)
    with prepared(workload, device) as repeat:
        for _ in range(2):
            repeat()
        seconds, products = by_turns(repeat, product, rounds, device)
    rates = sorted(workload.tokens / each for each in seconds)
    gflops = 2 * SQUARE**3 / statistics.median(products) / 1e9
    median = statistics.median(rates)
    share = None if workload.flops is None else workload.flops * median / (gflops * 1e9)
    return {
        "tokens_per_second": {"median": median, "min": rates[0], "max": rates[-1]},
        "matmul_gflops": gflops,
        "matmul_share": share,
        "peak_memory_bytes": _peak_memory(device),
    }


def matrix_product(dtype: torch.dtype, device: torch.device) -> Callable[[], None]:
    """A product of two square matrices, into a buffer that is there."""
    one, other, out = (torch.ones(SQUARE, SQUARE, dtype=dtype, device=device) for _ in range(3))

    def multiply() -> None:
        torch.mm(one, other, out=out)

    multiply()
    return multiply


def by_turns(
    repeat: Callable[[], object], product: Callable[[], None], rounds: int, device: torch.device
) -> tuple[list[float], list[float]]:
    """Seconds of each, round by round, so that a machine that changes its speed changes both."""
    pairs = [(timed(repeat, device), timed(product, device)) for _ in range(rounds)]
    return [one for one, _ in pairs], [other for _, other in pairs]


def timed(repeat: Callable[[], object], device: torch.device) -> float:
    """Seconds that `repeat` takes, until the device has done its part."""
    _synchronise(device)
    begin = time.perf_counter()
    repeat()
    _synchronise(device)
    return time.perf_counter() - begin


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _peak_memory(device: torch.device) -> int:
    """Bytes: of the device's tensors, or on a CPU of the whole process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def main() -> None:
    asked = json.loads(sys.stdin.readline())
    workload, device = Workload(**asked["workload"]), torch.device(asked["device"])
    if workload.work != "train":
        set_allocator()  # as the verbs do that evaluate and generate
    found = measure(workload, device, asked["rounds"])
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    print(json.dumps({**found, "device_name": name}), flush=True)


if __name__ == "__main__":
    main()
