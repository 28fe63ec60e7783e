"""`bench`: every workload in a process of its own, then bench.json and what is shown of it."""

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from txlbench.commands.publish import Published, publish
from txlbench.config.benchmarks import CONTEXTS, SIZES, Workload, workloads
from txlbench.errors import UserError, suggestion
from txlbench.machine import choose_devices, cores, current_commit, processor, worker_environment
from txlbench.reporting.bench import read_bench
from txlbench.reporting.findings import report_bench

SCHEMA = "txlbench.bench/1"


@dataclass(frozen=True)
class BenchRequest:
    """What the user asked `bench` for.

    Attributes:
        against: a bench.json to compare with.
        threads: CPU threads; None for every core.
        rounds: repetitions that are timed.
    """

    sizes: tuple[str, ...]
    out: Path
    against: Path | None = None
    device: str = "auto"
    threads: int | None = None
    rounds: int = 7
    command: str = "txlbench bench"


def bench(request: BenchRequest, progress: Callable[[Workload], None]) -> Published:
    """Times every workload and writes bench.json, tables and a figure to `request.out`.

    Args:
        progress: told what is timed next.

    Raises:
        UserError: for an unknown size, an unreadable file to compare with, or a workload that
            fails.
    """
    for name in request.sizes:
        if name not in SIZES:
            raise UserError(f"--sizes: {name!r} found", suggestion(name, SIZES))
    if request.against is not None:
        read_bench(request.against, request.command)
    return publish(
        request.out / "bench.json",
        lambda: _record(request, progress),
        lambda place: report_bench(place, request.command, against=request.against),
    )


def _record(request: BenchRequest, progress: Callable[[Workload], None]) -> dict[str, Any]:
    device = choose_devices(request.device, 1, 1).names[0]
    threads = request.threads or cores()
    results, products, names = [], [], set()
    for workload in workloads(request.sizes):
        progress(workload)
        found = _timed(workload, device, threads, request.rounds)
        products.append((workload.dtype, found.pop("matmul_gflops")))
        names.add(found.pop("device_name"))
        described = asdict(workload)
        shown = ("work", "size", "dtype", "batch_size", "tgt_len", "mem_len")
        results.append({**{key: described[key] for key in shown}, **found})
    return {
        "schema": SCHEMA,
        "machine": _machine(names.pop() or device, threads),
        "commit": current_commit(),
        "command": request.command,
        "contexts": list(CONTEXTS),
        "rounds": request.rounds,
        "matmul_gflops": _by_dtype(products),
        "results": results,
    }


def _timed(workload: Workload, device: str, threads: int, rounds: int) -> dict[str, Any]:
    asked = {"workload": asdict(workload), "device": device, "rounds": rounds}
    done = subprocess.run(
        [sys.executable, "-m", "txlbench.commands.bench_worker"],
        input=json.dumps(asked) + "\n",
        capture_output=True,
        text=True,
        env=worker_environment(threads, os.environ),
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        name = f"{workload.work} {workload.size} {workload.dtype}"
        raise UserError(f"{name}: {last}", "drop its size from --sizes")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _by_dtype(products: Sequence[tuple[str, float]]) -> dict[str, float]:
    """The median of what the processes measured."""
    return {
        dtype: statistics.median(rate for each, rate in products if each == dtype)
        for dtype in dict.fromkeys(dtype for dtype, _ in products)
    }


def _machine(device: str, threads: int) -> Mapping[str, Any]:
    return {
        "processor": processor(),
        "device": device,
        "threads": threads,
        "system": f"{platform.system()} {platform.machine()}",
        "torch": version("torch"),
    }
