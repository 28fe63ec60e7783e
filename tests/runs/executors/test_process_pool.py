"""Runs as real processes: their environment, their failures, and an end to all of them."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.runs.trial import alive, plan_of, prepared_job, stopping_after, write_spec, write_text
from txlbench.machine import Devices, cores
from txlbench.records.schema import RunState
from txlbench.runs.executors.process_pool import ProcessPool
from txlbench.runs.train_run import execute

ROOT = Path(__file__).parents[3]
SECONDS = 150


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


class Scenario:
    """Four runs, two at a time, each of which ends differently.

    Attributes:
        runs: directories by label.
        outcomes: states as they were told, by label.
        environments: of the processes as they were started, where the system shows them.
        most: processes seen at once.
    """

    ROWS = (
        {"label": "killed", "set": {"train.max_step": 10**6, "train.log_interval": 1}},
        {"label": "good", "set": {"train.lr": 0.02}},
        {"label": "diverges", "set": {"train.lr": 1e30, "train.warmup_step": 0}},
        {"label": "out of memory", "set": {"model.d_inner": 2**42}},
    )

    def __init__(self):
        write_spec({"train.eval_interval": 10**6}, rows=list(self.ROWS))
        plan = plan_of(out=Path("trial").absolute())
        self.runs = {run.labels[0]: run.directory for run in plan}
        self.jobs = [prepared_job(run) for run in plan]
        self.outcomes, self.environments, self.most = {}, {}, 0
        self.deadline = time.monotonic() + SECONDS
        self.inherited = environment(OMP_NUM_THREADS="7")
        self.pool = ProcessPool(Devices(("cpu",), 2, max(1, cores() // 2)), self.inherited)

    def ended(self, job, state):
        (label,) = [name for name, run in self.runs.items() if run.path == job.directory]
        self.outcomes[label] = state
        return True

    def tick(self):
        assert time.monotonic() < self.deadline
        running = [run for run in self.runs.values() if run.state is RunState.RUNNING]
        self.most = max(self.most, len([run for run in running if run.is_worked_on]))
        for run in running:
            self._note_environment(run.read_status().pid)
        killed = self.runs["killed"]
        if "good" in self.outcomes and killed in running and killed.metrics_file.exists():
            os.kill(killed.read_status().pid, signal.SIGKILL)

    def _note_environment(self, pid):
        path = Path(f"/proc/{pid}/environ")
        if path.exists() and pid not in self.environments and (content := path.read_bytes()):
            pairs = (line.partition("=") for line in content.decode().split("\0") if line)
            self.environments[pid] = {name: value for name, _, value in pairs}


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("pool")
        patch.chdir(folder)
        patch.setenv("TXLBENCH_DATA", str(folder / "data"))
        write_text(folder / "mine.txt")
        scenario = Scenario()
        scenario.pool.run(scenario.jobs, scenario.ended, scenario.tick)
        yield scenario


def test_each_run_ends_in_its_own_way(scenario):
    assert scenario.outcomes == {
        "killed": RunState.FAILED,
        "good": RunState.FINISHED,
        "diverges": RunState.DIVERGED,
        "out of memory": RunState.FAILED,
    }
    assert {label: run.state for label, run in scenario.runs.items()} == scenario.outcomes


def test_status_and_error_file_tell_why(scenario):
    def error(label):
        return scenario.runs[label].read_status().error

    assert error("killed").type == "SIGKILL"
    assert "signal 9" in error("killed").message
    assert "out of memory?" in error("killed").message
    assert error("diverges").type == "Diverged"
    assert "at step" in error("diverges").message
    assert error("out of memory").type == "RuntimeError"
    for label in ("diverges", "out of memory"):
        run = scenario.runs[label]
        assert error(label).message.split()[0] in run.error_file.read_text()
        assert "Traceback" in run.log_file.read_text()
    assert scenario.runs["good"].read_status().error is None


def test_cores_are_shared_out_before_torch_is_imported(scenario):
    """Also over what is inherited: the variables stand in the environment of the new process."""
    threads = max(1, cores() // 2)
    assert scenario.inherited["OMP_NUM_THREADS"] == "7"
    assert scenario.runs["good"].read_facts().threads == threads
    assert scenario.environments or not Path("/proc/self/environ").exists()
    for found in scenario.environments.values():
        assert found["OMP_NUM_THREADS"] == found["MKL_NUM_THREADS"] == str(threads)
        assert int(found["MALLOC_TRIM_THRESHOLD_"]) > 0


def test_no_more_run_at_once_than_allowed(scenario):
    assert scenario.most == 2


def test_no_process_is_left(scenario):
    for run in scenario.runs.values():
        assert not alive(run.read_status().pid)


def test_an_interrupt_before_a_process_is_ready_interrupts_its_run():
    """It has no handler for the signal yet, which must not count as a failure of the run."""
    write_spec(seeds=[1, 2])
    jobs = [prepared_job(run) for run in plan_of()]
    pool = ProcessPool(Devices(("cpu",), 2, 1), environment())

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.run(jobs, lambda job, state: True, interrupt)
    for run in plan_of():
        assert run.directory.state is RunState.INTERRUPTED
        assert run.need() == "training"


def test_a_process_that_dies_before_it_begins_does_not_leave_the_state_of_another_attempt():
    """A finished run that lacks an evaluation is not finished if its process is killed early."""
    write_spec()
    (run,) = plan_of()
    execute(prepared_job(run), stopping_after(10**6))
    told = []
    pool = ProcessPool(Devices(("cpu",), 1, 1), environment())

    def kill():
        for worker in pool._running:
            worker.process.kill()

    pool.run([prepared_job(run)], lambda job, state: told.append(state) or True, kill)
    assert told == [RunState.FAILED]
    assert run.directory.read_status().error.type == "SIGKILL"


def test_a_checkpoint_asked_of_the_pool_is_written_by_its_runs():
    """A process that is not ready yet takes the signal when it is."""
    write_spec({"train.max_step": 10**6, "train.eval_interval": 10**6}, seeds=[1, 2])
    plan, deadline = plan_of(), time.monotonic() + SECONDS
    pool = ProcessPool(Devices(("cpu",), 2, 1), environment())
    asked = []

    def tick():
        assert time.monotonic() < deadline
        running = [run for run in plan if run.directory.metrics_file.exists()]
        if not asked or (len(running) == 2 and len(asked) < 2):
            asked.append(os.kill(os.getpid(), signal.SIGUSR1))
        if len(asked) == 2 and all((r.directory.checkpoints / "last.pt").exists() for r in plan):
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(KeyboardInterrupt):
        pool.run([prepared_job(run) for run in plan], lambda job, state: True, tick)
    assert signal.getsignal(signal.SIGUSR1) is before
    assert [run.directory.state for run in plan] == [RunState.INTERRUPTED] * 2
    assert [run.directory.read_status().attempts for run in plan] == [1, 1]
