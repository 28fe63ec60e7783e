"""`bench`: every workload in a process of its own, then bench.json and what is shown of it."""

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from txlbench.commands.publish import PublishedFinding, publish
from txlbench.config.benchmarks import CONTEXTS, SIZES, Workload, workloads
from txlbench.errors import UserError, suggestion
from txlbench.machine import choose_devices, cores, current_commit, processor, worker_environment
from txlbench.records.finding_schema import (
    BenchMachine,
    BenchRecord,
    BenchResult,
    BenchTiming,
    EarlierBench,
    read_finding,
)
from txlbench.reporting.figures.style import Look


@dataclass(frozen=True)
class BenchRequest:
    """A call of `bench`.

    Attributes:
        against: a bench.json to compare with, whose history the new one goes on with.
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


def bench(
    request: BenchRequest, progress: Callable[[Workload], None], look: Look | None = None
) -> PublishedFinding:
    """Times every workload and writes bench.json, tables and a figure to `request.out`.

    Args:
        progress: told what is timed next.
        look: of the figure; its usual one without it.

    Raises:
        UserError: for an unknown size, an unreadable file to compare with, or a workload that
            fails.
    """
    for name in request.sizes:
        if name not in SIZES:
            raise UserError(f"--sizes: {name!r} found", suggestion(name, SIZES))
    history: tuple[EarlierBench, ...] = ()
    if request.against is not None:
        other = read_finding(request.against, BenchRecord)
        history = (*other.history, other.summary)
    place = request.out / "bench.json"
    return publish(place, lambda: _record(request, history, progress), look)


def _record(
    request: BenchRequest, history: tuple[EarlierBench, ...], progress: Callable[[Workload], None]
) -> BenchRecord:
    device = choose_devices(request.device, 1, 1).names[0]
    threads = request.threads or cores()
    timed: list[tuple[Workload, BenchTiming]] = []
    for workload in workloads(request.sizes):
        progress(workload)
        timed.append((workload, _timed(workload, device, threads, request.rounds)))
    return BenchRecord(
        schema=BenchRecord.SCHEMA,
        machine=BenchMachine(
            processor=processor(),
            device=timed[0][1].device_name or device,
            threads=threads,
            system=f"{platform.system()} {platform.machine()}",
            torch=version("torch"),
        ),
        time=time.time(),
        history=history,
        commit=current_commit(),
        command=request.command,
        contexts=CONTEXTS,
        rounds=request.rounds,
        matmul_gflops=_by_dtype([(each.dtype, found.matmul_gflops) for each, found in timed]),
        results=tuple(
            BenchResult(
                work=each.work,
                size=each.size,
                dtype=each.dtype,
                batch_size=each.batch_size,
                tgt_len=each.tgt_len,
                mem_len=each.mem_len,
                tokens_per_second=found.tokens_per_second,
                matmul_share=found.matmul_share,
                peak_memory_bytes=found.peak_memory_bytes,
                attention=found.attention,
                warning=found.warning,
            )
            for each, found in timed
        ),
    )


def _timed(workload: Workload, device: str, threads: int, rounds: int) -> BenchTiming:
    """Measures one workload in a process of its own."""
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
        lacks_memory = done.returncode == -signal.SIGKILL or "memory" in last.lower()
        remedy = "drop its size from --sizes" if lacks_memory else "see `txlbench bench --help`"
        raise UserError(f"{name}: the process ended with: {last}", remedy)
    return BenchTiming.model_validate_json(done.stdout.splitlines()[-1])


def _by_dtype(products: Sequence[tuple[str, float]]) -> dict[str, float]:
    """The median of what the processes measured."""
    return {
        dtype: statistics.median(rate for each, rate in products if each == dtype)
        for dtype in dict.fromkeys(dtype for dtype, _ in products)
    }
