"""What the machine is called in records.

Which device runs use, how many at once, and the environment of each.

Which commit of this package is running.
"""

import ctypes
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from txlbench.errors import UserError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Devices:
    """Where runs are placed.

    Attributes:
        names: devices that runs take turns on.
        jobs: runs at once.
        asked_threads: CPU threads of each run that were asked for; None for its share.
    """

    names: tuple[str, ...]
    jobs: int
    asked_threads: int | None = None

    @property
    def threads(self) -> int:
        """CPU threads of each run: as asked, else cores // jobs."""
        return self.asked_threads or max(1, cores() // self.jobs)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_devices(device: str, jobs: int | None, runs: int, threads: int | None = None) -> Devices:
    """Resolves `--device`, `--jobs` and `--threads`.

    Args:
        device: auto (every CUDA device, else the CPU), cpu, cuda (every one) or cuda:N.
        jobs: runs at once; default one a core on the CPU, or as many as its cores have room
            for at that many threads, and one a device on CUDA.
        runs: runs there are; no more go at once.
        threads: CPU threads of each run; default its share of the cores.

    Raises:
        UserError: if the device is unknown or not there.
    """
    names = ("cpu",) if device == "cpu" else _cuda_devices(device)
    default = cores() // (threads or 1) if names == ("cpu",) else len(names)
    return Devices(names, max(1, min(jobs or default, runs)), threads)


def check_name(device: str) -> None:
    """Refuses (UserError) what is no device; whether it is there is not asked."""
    kind, _, index = device.partition(":")
    if device not in ("auto", "cpu", "cuda") and not (kind == "cuda" and index.isdigit()):
        raise UserError(f"--device {device}: unknown", "auto, cpu, cuda or cuda:N")


def _cuda_devices(device: str) -> tuple[str, ...]:
    check_name(device)
    index = device.partition(":")[2]
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "auto" and count == 0:
        return ("cpu",)
    if count == 0 or (index and int(index) >= count):
        raise UserError(f"--device {device}: this machine has {count} CUDA devices", "use auto")
    return (device,) if index else tuple(f"cuda:{number}" for number in range(count))


def own_device(name: str) -> "torch.device":
    """The device for what this process computes itself, its allocator set before it does."""
    import torch

    set_allocator()
    return torch.device(choose_devices(name, 1, 1).names[0])


ALLOCATOR = {
    "MALLOC_MMAP_THRESHOLD_": (-3, 256 * 2**20),
    "MALLOC_TRIM_THRESHOLD_": (-1, 512 * 2**20),
    "MALLOC_TOP_PAD_": (-2, 64 * 2**20),
}
"""Settings that make glibc keep freed blocks: variable -> (parameter of mallopt, bytes)."""


HUGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}
"""Makes PyTorch ask for large pages, where the system gives them to those who ask.

Keys and values that are read once a token were measured to come from memory up to twice as fast.
Training gains nothing and was measured to fault more, so that its processes do without.
"""


def set_allocator() -> None:
    """Sets the allocator of a process that evaluates, before its first large tensor.

    Large pages are asked for, and with glibc freed blocks are kept as in workers.
    """
    for name, value in HUGE_PAGES.items():
        os.environ.setdefault(name, value)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    for name, (parameter, size) in ALLOCATOR.items():
        if mallopt is not None and name not in os.environ:
            mallopt(parameter, size)


def worker_environment(threads: int, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of a training process, complete before torch is imported there.

    Beside the threads, glibc is told to keep freed blocks: giving them back to the system at
    every step halves the speed of one thread. The user's own settings of it stand.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return {**allocator_settings(), **inherited, **dict.fromkeys(names, str(threads))}


def allocator_settings() -> dict[str, str]:
    """What the environment of a training process says of memory."""
    return {name: str(size) for name, (_, size) in ALLOCATOR.items()}


def current_commit() -> str | None:
    """The commit of the checkout this package runs from, with + where it was edited."""
    here = Path(__file__).parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None


def processor() -> str:
    """The processor's name; its architecture where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
