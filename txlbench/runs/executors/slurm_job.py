"""What a Slurm job does: it runs a worker, and goes back to the queue when it has to make room.

submitit carries to a job, as a pickle of its own, the name of `run_submitted` and one string of
JSON. Preemption and the end of the time limit are told by a signal: the worker writes a checkpoint,
its run is left `interrupted`, and the job puts itself into the queue again. SIGTERM does so too,
but where the scheduler itself has ended the job (`scancel`) or requeued it already.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from txlbench.files import read_json, write_json
from txlbench.machine import worker_environment
from txlbench.records.claim import OWNER
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.runs.job import SAVING, Job
from txlbench.runs.worker_process import WorkerProcess

STOPPING = signal.SIGINT
"""Sent by the driver: write a checkpoint and end, without going back to the queue."""
PREEMPTING = f"SIG{os.environ.get('SUBMITIT_PREEMPT_SIGNAL', 'USR2')}"
"""Name of the signal that submitit asks Slurm to send before a job's end."""
POLL_SECONDS = 0.1
IDLE_RESTARTS = 3
"""A job that was started so often and did nothing again is not put back into the queue."""
START_AGAIN = 144
"""Exit status at which submitit's local executor starts a job again."""


@dataclass(frozen=True)
class JobRecord:
    """The file beside an experiment's runs that says which job of a cluster a run was given to."""

    path: Path

    @classmethod
    def of(cls, run: Path) -> "JobRecord":
        return cls(slurm_folder(run) / f"{run.name}.json")

    def read(self) -> str | None:
        """The job's id; None if the run was given to none."""
        content = read_json(self.path) if self.path.exists() else {}
        return content.get("job") if isinstance(content, dict) else None

    def write(self, job_id: str) -> None:
        write_json(self.path, {"job": job_id})

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def slurm_folder(run: Path) -> Path:
    """The folder of an experiment for what goes between `ablate` and jobs, and for their logs."""
    return run.parents[1] / "slurm"


def as_argument(job: Job, threads: int) -> str:
    """The argument of `run_submitted`."""
    return json.dumps({"job": job.to_json(), "threads": threads})


def owner_of(job_id: str) -> str:
    """How claims name a job."""
    return f"slurm {job_id}"


def run_submitted(argument: str) -> None:
    """Trains and measures a run inside a job; the function that submitit calls there."""
    content = json.loads(argument)
    job, job_id = Job.from_json(content["job"]), _own_id()
    record = JobRecord.of(job.directory)
    if (known := record.read()) is None:
        record.write(job_id)  # the driver is slower, or was killed before it could
    elif known != job_id:
        print(f"{job.directory}: given to job {known}", flush=True)
        return
    else:
        job = replace(job, attempts=None)  # of an earlier life of this job, maybe
    environment = {
        **worker_environment(content["threads"], os.environ),
        OWNER: owner_of(job_id),
    }
    before = _progress(job.directory)
    asked, state = _work(job, environment)
    if state is not RunState.INTERRUPTED or not asked or STOPPING in asked:
        return
    idle = int(os.environ.get("SLURM_RESTART_COUNT", 0)) >= IDLE_RESTARTS
    if idle and _progress(job.directory) == before:
        print("not put into the queue again: nothing was done in the time given", flush=True)
        return
    _requeue(job_id, asked)


def _work(job: Job, environment: dict[str, str]) -> tuple[list[int], RunState]:
    """Runs the worker to its end; returns the signals that asked it to stop, and the state."""
    asked: list[int] = []
    stops = {STOPPING, signal.Signals[PREEMPTING], signal.SIGTERM}
    # Slurm sends signals to every process of a job; the worker is to hear of these from us alone.
    signal.pthread_sigmask(signal.SIG_BLOCK, stops - {signal.SIGTERM})
    worker = WorkerProcess(job, environment)
    _handle(SAVING, lambda number: worker.send(signal.Signals(number)))
    for number in stops:
        _handle(number, asked.append)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)
    worker.begin()
    told = False
    while not worker.is_over:
        if asked and not told:
            told = True
            print(f"{signal.Signals(asked[0]).name}: writing a checkpoint", flush=True)
            worker.send(signal.SIGTERM)
        time.sleep(POLL_SECONDS)
    return asked, worker.outcome(asked_to_stop=bool(asked))


def _handle(number: int, action: Callable[[int], object]) -> None:
    signal.signal(number, lambda received, _: action(received))


def _progress(run: Path) -> tuple[int, int]:
    """What tells that a life of a job was not in vain."""
    directory = RunDirectory(run)
    metrics = directory.metrics_file
    size = metrics.stat().st_size if metrics.exists() else 0
    return size, len(list(directory.evaluations.glob("*.json")))


def _own_id() -> str:
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    if array:
        return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ.get("SLURM_JOB_ID") or os.environ["SUBMITIT_LOCAL_JOB_ID"]


def _requeue(job_id: str, asked: list[int]) -> None:
    if "SLURM_JOB_ID" not in os.environ:
        if signal.SIGTERM not in asked:
            sys.exit(START_AGAIN)
        return
    look = ["squeue", "--noheader", "--jobs", job_id, "--format", "%T"]
    found = subprocess.run(look, capture_output=True, text=True)
    if found.stdout.strip() != "RUNNING":  # cancelled, or requeued by the scheduler
        return
    print("put into the queue again", flush=True)
    subprocess.run(["scontrol", "requeue", job_id], check=True)
