"""Devices, jobs and threads, and the environment of a training process."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from txlbench import machine
from txlbench.errors import UserError
from txlbench.machine import (
    WAITING,
    Devices,
    choose_devices,
    cpu_quotas,
    memory_limit,
    waiting_settings,
    worker_environment,
)


@pytest.fixture
def cuda(monkeypatch):
    """Pretends that the machine has a number of CUDA devices, and eight cores."""

    def pretend(count):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    monkeypatch.setattr(machine, "cores", lambda: 8)
    pretend(0)
    return pretend


@pytest.mark.parametrize("device", ["cpu", "auto"])
@pytest.mark.parametrize(
    ("jobs", "runs", "expected"),
    [(None, 100, 8), (None, 3, 3), (2, 100, 2), (20, 10, 10), (5, 0, 1)],
)
def test_jobs_on_a_cpu_are_one_a_core_and_no_more_than_runs(cuda, device, jobs, runs, expected):
    chosen = choose_devices(device, jobs, runs)
    assert (chosen.names, chosen.jobs) == (("cpu",), expected)


@pytest.mark.parametrize(("jobs", "threads"), [(1, 8), (2, 4), (3, 2), (8, 1), (100, 1)])
def test_cores_are_shared_out(cuda, jobs, threads):
    assert choose_devices("cpu", jobs, 100).threads == threads


@pytest.mark.parametrize("todo", [0, 1, 2, 4])
def test_a_run_has_the_same_threads_whether_few_or_all_of_a_grid_are_done(cuda, todo):
    assert choose_devices("cpu", None, 4, todo=todo) == Devices(("cpu",), max(1, todo), 2)
    assert choose_devices("cpu", 2, 4, todo=todo).threads == 4
    assert choose_devices("cpu", None, 100, todo=todo).threads == 1


def test_every_cuda_device_is_used_one_job_each(cuda):
    cuda(3)
    for device in ("auto", "cuda"):
        assert choose_devices(device, None, 10) == Devices(("cuda:0", "cuda:1", "cuda:2"), 3, 2)
    assert choose_devices("cuda:1", None, 10) == Devices(("cuda:1",), 1, 8)
    assert choose_devices("cuda:1", 4, 10) == Devices(("cuda:1",), 4, 2)
    assert choose_devices("cpu", None, 10) == Devices(("cpu",), 8, 1)


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "auto:1", ""])
def test_unknown_devices_are_refused(cuda, device):
    cuda(2)
    with pytest.raises(UserError, match=f"--device {device}: unknown; auto, cpu, cuda or cuda:N"):
        choose_devices(device, None, 1)


@pytest.mark.parametrize(("count", "device"), [(0, "cuda"), (0, "cuda:0"), (2, "cuda:2")])
def test_devices_that_are_not_there_are_refused(cuda, count, device):
    cuda(count)
    with pytest.raises(UserError, match=f"this machine has {count} CUDA devices"):
        choose_devices(device, None, 1)


def test_threads_of_a_worker_override_what_is_inherited():
    found = worker_environment(3, {"OMP_NUM_THREADS": "64", "PATH": "/bin"})
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    assert [found[name] for name in names] == ["3"] * 3
    assert found["PATH"] == "/bin"


def test_the_users_own_allocator_settings_stand():
    found = worker_environment(1, {"MALLOC_TRIM_THRESHOLD_": "1"})
    assert found["MALLOC_TRIM_THRESHOLD_"] == "1"
    assert int(found["MALLOC_MMAP_THRESHOLD_"]) > 2**20
    assert worker_environment(1, {})["MALLOC_TRIM_THRESHOLD_"] != "1"


def test_idle_threads_sleep_soon_unless_users_decide():
    assert worker_environment(2, {}).items() >= WAITING.items()
    assert worker_environment(2, {"GOMP_SPINCOUNT": "7"})["GOMP_SPINCOUNT"] == "7"
    assert not waiting_settings({"OMP_WAIT_POLICY": "active"})
    assert WAITING.keys().isdisjoint(worker_environment(2, {"OMP_WAIT_POLICY": "active"}))


VERB = """
import os, sys
import txlbench.machine
if sys.argv[1] == "quota":
    txlbench.machine.cpu_quotas = lambda: [0.5]
from txlbench.cli import main
main.cli.main = lambda **_: print("torch" in sys.modules, *map(os.environ.get, sys.argv[2:]))
main.main()
"""


@pytest.mark.parametrize("users", [{}, {"GOMP_SPINCOUNT": "9", "OMP_NUM_THREADS": "3"}])
def test_verbs_set_threads_before_torch_is_imported(users):
    names = ["GOMP_SPINCOUNT", "OMP_NUM_THREADS"]
    bare = {name: value for name, value in os.environ.items() if "OMP_" not in name}
    for case, threads in (("none", "None"), ("quota", "1")):
        done = subprocess.run(
            [sys.executable, "-c", VERB, case, *names],
            env={**bare, **users},
            capture_output=True,
            text=True,
        )
        expected = [users.get(names[0], WAITING[names[0]]), users.get(names[1], threads)]
        assert done.stdout.split() == ["False", *expected], done.stderr


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


V1 = "4:memory:/x\n2:cpu,cpuacct:/docker/abc\n0::/\n"


@pytest.mark.parametrize(
    ("files", "quotas"),
    [
        ({}, []),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "200000 100000\n"}, [2.0]),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, []),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
                "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            },
            [4.0, 1.5],
        ),
        (  # the group's own path leads nowhere inside a container, whose root it is
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "300000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            [3.0],
        ),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us": "100000\n",
            },
            [],
        ),
        ({"proc/self/cgroup": "nonsense\n", "sys/fs/cgroup/cpu.max": "x\n"}, []),
    ],
)
def test_quotas_of_both_versions_of_cgroups_are_read(tmp_path, files, quotas):
    write(tmp_path, files)
    assert list(cpu_quotas(tmp_path)) == quotas


CHILD = {"proc/self/cgroup": "0::/a/b\n"}
PRESENT = {"proc/meminfo": "MemTotal:       1000 kB\nMemFree:  5 kB\n"}


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        (PRESENT, 1000 * 1024),
        (
            {**PRESENT, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "512000\n"},
            512000,
        ),
        (
            {**PRESENT, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"},
            1000 * 1024,
        ),
        (
            {
                **PRESENT,
                "proc/self/cgroup": "4:memory:/a\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            9000,
        ),
    ],
)
def test_memory_is_the_machine_s_or_a_cgroup_s_limit(tmp_path, files, limit):
    write(tmp_path, files)
    assert memory_limit(tmp_path) == limit


@pytest.mark.parametrize(("quotas", "expected"), [([], 8), ([2.0], 2), ([4.0, 1.5], 2), ([0.1], 1)])
def test_a_quota_counts_as_cores(monkeypatch, quotas, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setattr(machine, "cpu_quotas", lambda: quotas)
    assert machine.cores() == expected
    assert choose_devices("cpu", None, 40).jobs == expected


PAGES = """
import os, sys
from txlbench.machine import own_device
own_device("cpu")
import torch
kept = torch.ones(2**24)
print(os.environ["THP_MEM_ALLOC_ENABLE"])
"""


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.parametrize("users", [{}, {"THP_MEM_ALLOC_ENABLE": "0"}])
def test_a_process_that_evaluates_asks_for_large_pages(users):
    bare = {name: value for name, value in os.environ.items() if "THP" not in name}
    done = subprocess.run(
        [sys.executable, "-c", PAGES], env={**bare, **users}, capture_output=True, text=True
    )
    assert done.stdout.split() == [users.get("THP_MEM_ALLOC_ENABLE", "1")], done.stderr


FAULTS = """
import resource, sys
import numpy as np
from txlbench.machine import set_allocator
if sys.argv[1] == "keep":
    set_allocator()
for _ in range(3):
    np.ones(2**21)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    first, second = np.ones(2**21), np.ones(2**21)
    del first, second
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_blocks_are_kept_when_asked_for():
    """The pages of 40 arrays of 16 MB are fetched from the system anew, or are there already."""
    faults = {}
    for how in ("keep", "default"):
        command = [sys.executable, "-c", FAULTS, how]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        faults[how] = int(done.stdout)
    assert (faults["keep"] * 5 < faults["default"]) == (platform.libc_ver()[0] == "glibc")


def test_threads_that_are_asked_for_are_given_and_leave_room_for_fewer_jobs(cuda):
    assert choose_devices("cpu", None, 100, 3) == Devices(("cpu",), 2, 3)
    assert choose_devices("cpu", None, 100, 16).jobs == 1
    assert choose_devices("cpu", 5, 100, 3) == Devices(("cpu",), 5, 3)
    assert choose_devices("cpu", 5, 100, 3).threads == 3
    cuda(2)
    assert choose_devices("cuda", None, 100, 3).jobs == 2


def test_an_outer_torchrun_is_known_by_what_it_sets(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "3")  # some schedulers set this alone
    assert machine.torchrun_processes() == 1
    monkeypatch.setenv("RANK", "2")
    assert machine.torchrun_processes() == 3
