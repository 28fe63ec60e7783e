"""Launcher `slurm`: a job of the cluster for each run, submitted by submitit.

Jobs outlive the process that submitted them. Which job a run was given to is kept beside the runs,
so that a later call waits for jobs that are still queued instead of submitting others.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import submitit
import torch

from txlbench.errors import UserError
from txlbench.machine import choose_devices
from txlbench.records.claim import holder, is_claimed
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import Failure, RunState
from txlbench.runs.executors.executor import Executor, Launch
from txlbench.runs.executors.slurm_job import (
    STOPPING,
    JobRecord,
    as_argument,
    owner_of,
    run_submitted,
    slurm_folder,
)
from txlbench.runs.job import SAVING, Job
from txlbench.runs.plan import Request
from txlbench.runs.worker_process import GRACE_SECONDS

STOP_POLL_SECONDS = 0.5
LARGEST_ARRAY = 1000
"""Slurm's default limit of an array."""
LOCAL_MINUTES = 10**5
NUMBERS = {"signal_delay_s": 0, "nodes": 1}
"""Options that submitit wants as numbers, and the least of each."""
OWN_OPTIONS = {
    "array": "--jobs N limits how many run at a time",
    "array_parallelism": "--jobs N limits how many run at a time",
    "additional_parameters": "leave it out",
    "error": "leave it out",
    "job_name": "leave it out",
    "map_count": "leave it out",
    "output": "leave it out",
    "stderr_to_stdout": "leave it out",
    "use_srun": "leave it out",
}
"""What jobs are found by or written with, and what to do instead of setting it."""
REFUSALS = (
    submitit.core.utils.FailedSubmissionError,
    submitit.core.utils.FailedJobError,
    ValueError,
)
"""What submitit raises if an option is unknown or sbatch fails."""


class JobQueue(Protocol):
    """Where jobs are queued."""

    seconds_between_looks: float

    def submit(self, arguments: Sequence[str]) -> list[str]:
        """Submits a job for each argument of `run_submitted`; returns their ids."""
        ...

    def queued(self) -> set[str] | None:
        """Ids of jobs that wait or run; None if that cannot be told now."""
        ...

    def drop_waiting(self, ids: Collection[str]) -> None:
        """Takes jobs out of the queue that have not started."""
        ...

    def send(self, ids: Collection[str], number: signal.Signals) -> None:
        """Sends a signal to jobs that run."""
        ...

    def cancel(self, ids: Collection[str]) -> None:
        """Ends jobs as the scheduler does."""
        ...


class SlurmExecutor(Executor):
    """Submits jobs and waits for them.

    All are handed over at once, in an array; --jobs limits how many of it run at a time.

    Args:
        todo: runs that are to be done.

    Raises:
        UserError: if this machine cannot submit jobs, or an option is no use.
    """

    def __init__(self, request: Request, todo: int) -> None:
        super().__init__(max(1, todo))
        self._request = request
        self._threads = request.threads or request.launch.cpus or 1
        self._device = request.device
        if self._device == "auto":
            self._device = "cuda" if request.launch.gpus else "cpu"
        self._is_local = request.launch.others.get("cluster") == "local"
        if not self._is_local and shutil.which("sbatch") is None:
            raise UserError(
                "--launcher slurm: this machine has no sbatch",
                "call it on a machine that submits jobs, or use --launcher process",
            )
        _check_options(request.launch)
        if self._is_local:
            _check_local(request)
        self._new: list[Job] = []
        self._submitted: dict[str, Job] = {}
        self._queued: set[str] = set()
        self._next_look = 0.0

    @property
    def running(self) -> int:
        return len(self._new) + len(self._submitted)

    def start(self, job: Job) -> None:
        self._new.append(job)

    def collect(self) -> list[tuple[Job, RunState]]:
        if self._new:
            self._hand_over()
        if time.monotonic() >= self._next_look:
            found = self._cluster.queued()
            self._queued = set(self._submitted) if found is None else found
            self._next_look = time.monotonic() + self._cluster.seconds_between_looks
        over = []
        for name, job in list(self._submitted.items()):
            state = _end(job) or (None if name in self._queued else _end_outside(job, name))
            if state is not None:
                self._forget(name)
                over.append((job, state))
        return over

    def withdraw(self) -> None:
        self._cluster.drop_waiting(self._submitted)

    def save(self) -> None:
        if self._submitted:
            self._cluster.send(self._submitted, SAVING)

    def stop(self) -> None:
        """Cancels those that take longer than a while for their checkpoints."""
        self._new = []
        if not self._submitted:
            return
        self._cluster.send(self._submitted, STOPPING)
        deadline = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < deadline:
            self._cluster.drop_waiting(self._submitted)
            found = self._cluster.queued()
            if found is not None and not found & self._submitted.keys():
                break
            time.sleep(STOP_POLL_SECONDS)
        self._cluster.cancel(self._submitted)
        for name in list(self._submitted):
            self._forget(name)

    @cached_property
    def _cluster(self) -> JobQueue:
        folder = slurm_folder(self._new[0].directory)
        folder.mkdir(parents=True, exist_ok=True)
        if self._is_local:
            return _ThisMachine(folder)
        limit = self._request.jobs or self.at_once
        return _Slurm(folder, _options(self._request.launch, self._threads, self._device, limit))

    def _hand_over(self) -> None:
        """Submits what no earlier call has submitted that is queued still."""
        self._submitted |= _adopted(self._new, self._cluster.queued() or set())
        jobs = [job for job in self._new if job not in self._submitted.values()]
        for start in range(0, len(jobs), LARGEST_ARRAY):
            some = [replace(job, device=self._device) for job in jobs[start:][:LARGEST_ARRAY]]
            names = self._cluster.submit([as_argument(job, self._threads) for job in some])
            for job, name in zip(jobs[start:], names, strict=False):
                self._submitted[name] = job
                JobRecord.of(job.directory).write(name)
        self._new, self._next_look = [], 0.0

    def _forget(self, name: str) -> None:
        """Removes what was kept of a job, and the pickles that handed it over; its log stays."""
        directory = self._submitted.pop(name).directory
        JobRecord.of(directory).remove()
        folder = slurm_folder(directory)
        for path in (*folder.glob(f"{name}_*.pkl"), *folder.glob("*_result.pkl")):
            path.unlink(missing_ok=True)


def _adopted(jobs: Sequence[Job], queued: Collection[str]) -> dict[str, Job]:
    """Those of `jobs` that an earlier call submitted and that are queued still, by job id."""
    known = ((JobRecord.of(job.directory).read(), job) for job in jobs)
    return {name: job for name, job in known if name in queued and name is not None}


def _end(job: Job) -> RunState | None:
    """The state that a run was brought to for good since the job was planned; None before that."""
    run = RunDirectory(job.directory)
    if run.attempts == job.attempts or is_claimed(run.path):
        return None
    state = run.current_state
    return state if state.is_bad or state is RunState.FINISHED else None


def _end_outside(job: Job, name: str) -> RunState:
    """The state of a run whose job has left the queue without bringing it to an end."""
    run = RunDirectory(job.directory)
    if is_claimed(run.path) and holder(run.path).owner != owner_of(name):
        return RunState.RUNNING
    state = run.state
    if run.attempts == job.attempts or state not in (RunState.INTERRUPTED, RunState.FINISHED):
        log = slurm_folder(job.directory) / f"{name}_0_log.out"
        message = f"job {name} ended from outside; see {log}"
        run.set_state(RunState.INTERRUPTED, Failure(type="Slurm", message=message, where="queue"))
        return RunState.INTERRUPTED
    return state


def _check_options(launch: Launch) -> None:
    """Refuses options that would break the batch file, or how jobs are found again."""
    for key, value in launch.others.items():
        name = key.replace("-", "_")
        if name in OWN_OPTIONS:
            problem = f"--resource {key}={value}: set by txlbench itself"
            raise UserError(problem, OWN_OPTIONS[name])
        least = NUMBERS.get(name)
        if least is not None and not (value.isdecimal() and int(value) >= least):
            problem = f"--resource {key}={value}: not a whole number from {least} on"
            raise UserError(problem, f"as {key}={least or 90}")


def _check_local(request: Request) -> None:
    """Refuses what processes of this machine do not take, and GPUs that it lacks."""
    for key, value in request.launch.others.items():
        if key != "cluster":
            problem = f"--resource {key}={value}: with cluster=local no queue reads it"
            raise UserError(problem, "leave it out")
    asked, count = request.launch.gpus or 0, torch.cuda.device_count()
    if asked > count:
        problem = f"--resource gpus={asked}: this machine has {count} CUDA devices"
        raise UserError(problem, "leave it out, or cluster=local")
    choose_devices(request.device, 1, 1)


def _options(launch: Launch, threads: int, device: str, limit: int) -> dict[str, Any]:
    """What submitit writes into the batch file."""
    known = submitit.SlurmExecutor._valid_parameters()
    given = {key.replace("-", "_"): value for key, value in launch.others.items()}
    own: dict[str, Any] = {
        "time": None,  # the partition's, where submitit would give five minutes
        "cpus_per_task": launch.cpus or threads,
        "gpus_per_node": launch.gpus if launch.gpus is not None else int(device != "cpu") or None,
        "mem": f"{-(-launch.memory // 2**20)}M" if launch.memory else None,
        "array_parallelism": limit,
        "stderr_to_stdout": True,
        "wckey": None,
        **{key: value for key, value in given.items() if key in known},
    }
    own |= {key: int(own[key]) for key in NUMBERS.keys() & own.keys()}
    if "setup" in own:
        own["setup"] = [own["setup"]]
    others = {key: value for key, value in given.items() if key not in known}
    return {**own, "additional_parameters": {"requeue": True, **others}}


class _Slurm:
    """The Slurm cluster that this machine belongs to."""

    seconds_between_looks = 5.0

    def __init__(self, folder: Path, options: Mapping[str, Any]) -> None:
        digest = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:8]
        self._name = f"txlbench-{folder.parent.name}-{digest}"
        self._folder = folder
        self._options = options

    def submit(self, arguments: Sequence[str]) -> list[str]:
        if not arguments:
            return []
        executor = submitit.SlurmExecutor(self._folder)
        try:
            executor.update_parameters(job_name=self._name, **self._options)
            jobs = executor.map_array(run_submitted, arguments)
        except REFUSALS as error:
            said = (str(error).strip().splitlines() or ["no reason given"])[-1]
            raise UserError(f"--launcher slurm: {said}", "see `sinfo`, mend --resource") from error
        return [job.job_id for job in jobs]

    def queued(self) -> set[str] | None:
        look = ["squeue", "--noheader", "--array", "--name", self._name, "--format", "%i"]
        found = subprocess.run(look, capture_output=True, text=True)
        return set(found.stdout.split()) if found.returncode == 0 else None

    def drop_waiting(self, ids: Collection[str]) -> None:
        self._scancel("--state=PENDING", ids)

    def send(self, ids: Collection[str], number: signal.Signals) -> None:
        self._scancel(f"--signal={number.name.removeprefix('SIG')}", ids)

    def cancel(self, ids: Collection[str]) -> None:
        self._scancel("--quiet", ids)

    def _scancel(self, option: str, ids: Collection[str]) -> None:
        if ids:
            subprocess.run(["scancel", option, *ids], capture_output=True)


class _ThisMachine:
    """Jobs as processes of this machine, by submitit's local executor; for tests and trials."""

    seconds_between_looks = 0.2

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs: dict[str, submitit.Job[None]] = {}

    def submit(self, arguments: Sequence[str]) -> list[str]:
        executor = submitit.LocalExecutor(self._folder)
        executor.update_parameters(timeout_min=LOCAL_MINUTES, stderr_to_stdout=True)
        started = [executor.submit(run_submitted, each) for each in arguments]
        self._jobs |= {job.job_id: job for job in started}
        return [job.job_id for job in started]

    def queued(self) -> set[str] | None:
        for job in self._jobs.values():
            job.done()  # takes note of those that ended
        names = (path.name.split("_")[0] for path in self._folder.glob("*_submitted.pkl"))
        return {name for name in names if self._is_controller(name)}

    def _is_controller(self, name: str) -> bool:
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            return False
        return b"submitit" in words

    def drop_waiting(self, ids: Collection[str]) -> None:
        """None waits: all start at once."""

    def send(self, ids: Collection[str], number: signal.Signals) -> None:
        if number is STOPPING:
            self.cancel(ids)

    def cancel(self, ids: Collection[str]) -> None:
        for name in ids:
            if self._is_controller(name):
                os.kill(int(name), signal.SIGTERM)
