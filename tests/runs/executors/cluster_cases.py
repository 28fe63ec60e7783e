"""What must hold of jobs in a queue, whichever queue it is: Slurm's, or submitit's local one."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cli.trial import environment
from tests.runs.trial import plan_of, write_spec
from txlbench.records.schema import RunState

SECONDS = 240


def long_spec(steps=3000, seeds=(1,)):
    """Runs of at least some seconds, which write a line for every step and no checkpoint before
    they are asked to."""
    settings = {"train.max_step": steps, "train.log_interval": 1, "train.eval_interval": 10**6}
    write_spec(settings, seeds=list(seeds))
    return [run.directory for run in plan_of()]


class Driver:
    """`txlbench ablate --launcher slurm` as a process of its own session.

    Attributes:
        resources: `--resource` options.
    """

    def __init__(self, *resources):
        options = [word for each in resources for word in ("--resource", each)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "txlbench", "ablate", "spec.yaml", "--launcher=slurm", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(OMP_NUM_THREADS="1"),
            cwd=Path.cwd(),
            start_new_session=True,
        )

    def finish(self, status=0):
        said = self.process.communicate(timeout=SECONDS)[0]
        assert self.process.returncode == status, said
        return said

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)


def wait_until(condition):
    deadline = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def logged(run):
    """The number of the last step that the run logged."""
    lines = run.metrics_file.read_bytes().splitlines() if run.metrics_file.exists() else []
    return json.loads(lines[-1])["step"] if lines else 0


def job_of(run):
    """The id of the job that the run was given to, once that is known."""
    return wait_until(lambda: record(run).exists() and json.loads(record(run).read_text())["job"])


def record(run):
    return run.path.parents[1] / "slurm" / f"{run.id}.json"


def assert_complete(run, steps, attempts):
    """Every step is there once, however often the run was interrupted."""
    found = [json.loads(line) for line in run.metrics_file.read_text().splitlines()]
    trained = [line["step"] for line in found if "train_loss" in line]
    assert trained == list(range(1, steps + 1))
    assert (run.state, run.attempts) == (RunState.FINISHED, attempts)
    assert not record(run).exists()
    assert list((run.path.parents[1] / "slurm").glob("*_submitted.pkl")) == []


def four_runs_finish(*resources):
    write_spec(seeds=[1, 2, 3, 4])
    said = Driver(*resources).finish()
    runs = [run.directory for run in plan_of()]
    assert [(run.state, run.attempts) for run in runs] == [(RunState.FINISHED, 1)] * 4
    assert "4 seeds" in said


def a_job_makes_room_and_goes_on(preempt, *resources):
    """`preempt(job id)` tells the job; its run is interrupted with a checkpoint, and finishes."""
    (run,) = long_spec()
    driver = Driver(*resources)
    job = job_of(run)
    wait_until(lambda: logged(run) > 20)
    preempt(job)
    wait_until(lambda: run.attempts > 1 or (run.checkpoints / "last.pt").exists())
    driver.finish()
    assert_complete(run, 3000, attempts=2)


def a_driver_is_killed_and_called_again(*resources):
    """Its jobs go on; the second call waits for them, and submits nothing twice."""
    first, second = long_spec(2000, seeds=(1, 2))
    driver = Driver(*resources)
    jobs = [job_of(run) for run in (first, second)]
    wait_until(lambda: logged(first) or logged(second))
    driver.kill()
    again = Driver(*resources)
    wait_until(lambda: logged(first) + logged(second) > 100)
    assert {job_of(run) for run in (first, second) if record(run).exists()} <= set(jobs)
    again.finish()
    for run in (first, second):
        assert (run.state, run.attempts) == (RunState.FINISHED, 1)
    logs = list((first.path.parents[1] / "slurm").glob("*_log.out"))
    assert len(logs) == 2


def an_interrupt_stops_the_jobs_with_a_checkpoint(queue_is_empty, *resources):
    (run,) = long_spec(10**6)
    driver = Driver(*resources)
    wait_until(lambda: logged(run) > 20)
    driver.interrupt()
    driver.finish(status=130)
    assert run.state is RunState.INTERRUPTED
    assert (run.checkpoints / "last.pt").exists()
    wait_until(queue_is_empty)
