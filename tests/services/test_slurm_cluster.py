"""Runs as jobs of a real Slurm; `make test-services` installs it."""

import shutil
import tempfile
from pathlib import Path

import pytest

from tests.cli.trial import call
from tests.runs.executors import cluster_cases as cases
from tests.runs.trial import write_spec, write_text
from tests.services.one_node_slurm import OneNodeSlurm

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def cluster():
    needed = ("munged", "slurmctld", "slurmd", "sbatch")
    missing = [name for name in needed if shutil.which(name) is None]
    assert not missing, f"{', '.join(missing)}: not installed; `make test-services` does it"
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    cluster = OneNodeSlurm(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, cluster):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SLURM_CONF", cluster.environment["SLURM_CONF"])
    write_text(tmp_path / "mine.txt")
    yield tmp_path
    cluster.call("scancel", "--user=root")


LOW = ("partition=low", "time=01:00:00")


def test_four_runs_finish():
    cases.four_runs_finish(*LOW)


@pytest.mark.parametrize("name", ["TERM", "USR2"])
def test_a_job_that_is_told_makes_room_and_goes_on(cluster, name):

    def tell(job):
        cluster.call("scancel", f"--signal={name}", job)
        cluster.begin_again(job)

    cases.a_job_makes_room_and_goes_on(tell, *LOW)


def test_a_job_that_is_preempted_goes_on(cluster):
    """By jobs of a partition of higher priority, which take both cores for a moment."""

    def preempt(job):
        more = ("--ntasks=2", "--output=/dev/null", "--wrap", "sleep 5")
        cluster.call("sbatch", "--partition=high", *more)
        cluster.begin_again(job)

    cases.a_job_makes_room_and_goes_on(preempt, *LOW)


def test_a_job_goes_on_after_its_time_and_ends_with_the_driver(cluster, folder):
    """A minute each time, of which the last 40 seconds are for the checkpoint."""
    (run,) = cases.long_spec(10**6)
    driver = cases.Driver("partition=low", "time=1", "signal_delay_s=40")
    job = cases.job_of(run)
    cases.wait_until(lambda: run.state == "interrupted")
    cluster.begin_again(job)
    cases.wait_until(lambda: run.attempts == 2 and cases.logged(run))
    assert (run.checkpoints / "last.pt").exists()
    driver.interrupt()
    driver.finish(status=130)
    assert run.current_state == "interrupted"
    cases.wait_until(lambda: not cluster.jobs())
    steps = [line.step for line in run.read_metrics() if line.train_loss is not None]
    assert steps == list(range(1, len(steps) + 1))


def test_a_driver_is_killed_and_called_again():
    cases.a_driver_is_killed_and_called_again(*LOW)


def test_a_job_that_was_cancelled_stays_out_of_the_queue(cluster):
    """SIGTERM by `scancel` must not put it back; its run has a checkpoint."""
    (run,) = cases.long_spec(10**6)
    driver = cases.Driver(*LOW)
    job = cases.job_of(run)
    cases.wait_until(lambda: cases.logged(run) > 20)
    cluster.call("scancel", job)
    assert "interrupted" in driver.finish(status=1)
    assert (run.checkpoints / "last.pt").exists()
    cases.wait_until(lambda: not cluster.jobs())


def test_what_slurm_refuses_is_said_in_one_line():
    write_spec()
    status, _, errors = call(
        "ablate", "spec.yaml", "--launcher", "slurm", "--resource", "partition=none"
    )
    assert status == 2
    (line,) = [line for line in errors.splitlines() if line.startswith("Error")]
    assert "partition" in line
