"""The machine: its devices, cores and processor, the environment of processes, the commit."""

import ctypes
import math
import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
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
        threads: CPU threads of each process of a run.
    """

    names: tuple[str, ...]
    jobs: int
    threads: int


def cores() -> int:
    """Cores this process may keep busy: its affinity, or less where a cgroup has a quota."""
    affinity = hasattr(os, "sched_getaffinity")
    present = len(os.sched_getaffinity(0)) if affinity else os.cpu_count() or 1
    return max(1, min([present, *map(math.ceil, cpu_quotas())]))


def cpu_quotas(root: Path = Path("/")) -> Iterator[float]:
    """The CPU quotas of this process's cgroup and those above it, in cores.

    Both versions are read: `cpu.max` of v2, and `cpu.cfs_quota_us` of v1's cpu controller.
    """
    for folder in _cgroups("cpu", root):
        yield from _quota(folder)


def memory_limit(root: Path = Path("/")) -> int | None:
    """Bytes of main memory that this process may use; None where the system does not tell.

    That is what the machine has, or less where a cgroup has a limit: `memory.max` of v2,
    `memory.limit_in_bytes` of v1's memory controller.
    """
    present = [line.split() for line in _lines(root / "proc/meminfo")]
    limits = [int(words[1]) * 1024 for words in present if words[:1] == ["MemTotal:"]]
    for folder in _cgroups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limits += [int(line) for line in _lines(folder / name) if line.strip().isdigit()]
    return min(limits, default=None)


def device_memory(name: str) -> int | None:
    """Bytes of a device: main memory, or a CUDA device's own."""
    if not name.startswith("cuda"):
        return memory_limit()
    import torch

    return int(torch.cuda.get_device_properties(name).total_memory)


def _cgroups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of this process's cgroup and those above it, of a controller, in v1 and v2."""
    for line in _lines(root / "proc/self/cgroup"):
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers and controller not in controllers.split(","):
            continue
        mounts = (controllers, controller) if controllers else ("", "unified")
        for mount in dict.fromkeys(root / "sys/fs/cgroup" / name for name in mounts):
            below = mount / group.strip("/")
            yield from (each for each in (below, *below.parents) if each.is_relative_to(mount))


def _quota(group: Path) -> Iterator[float]:
    """The quota of one cgroup in cores, if it has one: microseconds in each period."""
    limits = " ".join(_lines(group / "cpu.max")).split()
    if not limits:
        files = (group / "cpu.cfs_quota_us", group / "cpu.cfs_period_us")
        limits = [line for file in files for line in _lines(file)]
    if len(limits) == 2 and all(limit.isdigit() and int(limit) for limit in limits):
        yield int(limits[0]) / int(limits[1])


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def choose_devices(
    device: str,
    jobs: int | None,
    runs: int,
    threads: int | None = None,
    todo: int | None = None,
    processes: int = 1,
) -> Devices:
    """Resolves `--device`, `--jobs` and `--threads`.

    Threads decide the last digits of numbers, so a run's default number of them follows from the
    whole experiment, and is the same whether all its runs are done or a few.

    Args:
        device: auto (every CUDA device, else the CPU), cpu, cuda (every one) or cuda:N.
        jobs: runs at once; default one a core on the CPU, or as many as its cores have room
            for at that many threads, and one a device on CUDA.
        runs: runs of the whole experiment.
        threads: CPU threads of each process of a run; default its share of the cores.
        todo: runs that are to be done, no more of which go at once; default all.
        processes: those of each run, which have a device each, or their part of the cores.

    Raises:
        UserError: if the device is unknown or not there, or there are fewer than `processes`.
    """
    names = ("cpu",) if device == "cpu" else _cuda_devices(device)
    if names != ("cpu",) and processes > len(names):
        raise UserError(
            f"train.devices: {processes} for one run, of {len(names)} CUDA devices",
            f"--set train.devices={len(names)}",
        )
    default = (cores() // (threads or 1) if names == ("cpu",) else len(names)) // processes
    at_once = jobs or max(1, min(default, runs))
    share = max(1, cores() // (at_once * processes))
    return Devices(names, max(1, min(at_once, runs if todo is None else todo)), threads or share)


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


def peak_memory(device: str) -> int:
    """The most bytes that this process has held so far: of a CUDA device, or of main memory.

    Linux's `ru_maxrss` begins with what the process had that started this one; `VmHWM` does not.
    """
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated(device)
    for line in _lines(Path("/proc/self/status")):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024


def own_device(name: str) -> "torch.device":
    """The device for what this process computes itself, its allocator set before it does."""
    import torch

    set_allocator()
    return torch.device(local_device(name))


def local_device(name: str) -> str:
    """The device of this process: of torchrun's processes, each has its own CUDA device.

    Raises:
        UserError: if this machine has fewer devices than processes.
    """
    names = choose_devices(name, 1, 1).names
    local = int(os.environ.get("LOCAL_RANK", "0")) if torchrun_processes() > 1 else 0
    if names == ("cpu",):
        return "cpu"
    if local >= len(names):
        raise UserError(
            f"torchrun: more processes than CUDA devices here, {len(names)}",
            f"--nproc-per-node {len(names)}",
        )
    return names[local]


def torchrun_processes() -> int:
    """The number of processes of this command that an outer torchrun has started; else 1."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def is_follower() -> bool:
    """Whether another of torchrun's processes speaks and writes for all of them."""
    return torchrun_processes() > 1 and os.environ["RANK"] != "0"


WAITING = {"GOMP_SPINCOUNT": "20000", "KMP_BLOCKTIME": "1"}
"""How long idle OpenMP threads spin before they sleep: loops (GNU), milliseconds (LLVM, Intel).

By default they spin for milliseconds at every small operation, which on a busy machine takes the
cores from the threads that are waited for. Much shorter spins cost quiet speed: with 500 training
ran at 0.55 and generation at 0.3 of it, with 20,000 at all of it (tests/benchmarks/under_load.py).
"""


def waiting_settings(inherited: Mapping[str, str]) -> dict[str, str]:
    """What an environment lacks for idle threads to sleep soon; nothing where users decided."""
    if "OMP_WAIT_POLICY" in inherited:
        return {}
    return {name: value for name, value in WAITING.items() if name not in inherited}


def set_threads() -> None:
    """Sets the threads of a process that computes itself; does nothing once torch is imported.

    Idle ones sleep soon. Where a quota gives fewer cores than are there, no more threads start.
    """
    os.environ.update(waiting_settings(os.environ))
    if any(cpu_quotas()):
        os.environ.setdefault("OMP_NUM_THREADS", str(cores()))


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

    Beside the threads, idle ones sleep soon, and glibc is told to keep freed blocks: giving them
    back to the system at every step halves the speed of one thread. The user's own settings of
    both stand.
    """
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    settings = {**allocator_settings(), **waiting_settings(inherited)}
    return {**settings, **inherited, **dict.fromkeys(names, str(threads))}


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
    lines = _lines(Path("/proc/cpuinfo"))
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
