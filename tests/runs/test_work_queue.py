"""Several calls on one output share its runs; one that dies leaves them to the others."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.cli.trial import environment, start
from tests.runs.in_process import run_suite
from tests.runs.trial import execute_all, plan_of, prepared_job, write_spec
from txlbench.errors import ExitStatus
from txlbench.files import write_json
from txlbench.records.claim import SILENCE_SECONDS, claimed
from txlbench.records.schema import Failure, RunState
from txlbench.runs import work_queue
from txlbench.runs.job import Job
from txlbench.runs.train_run import execute
from txlbench.runs.work_queue import WorkQueue
from txlbench.runs.worker import TAKEN

SEEDS = [1, 2, 3]


@pytest.fixture
def plan(monkeypatch):
    monkeypatch.setattr(work_queue, "POLL_SECONDS", 0.02)
    write_spec(seeds=SEEDS)
    return plan_of()


def paths(jobs):
    return [job.directory.name for job in jobs]


def test_what_another_call_holds_is_passed_over(plan):
    first, *others = plan
    prepared_job(first)
    with claimed(first.directory.path):
        assert paths(WorkQueue(plan, print).jobs()) == [run.id for run in others]
    assert paths(WorkQueue(plan, print).jobs()) == [run.id for run in plan]


def test_what_another_machine_holds_is_waited_for_until_it_is_silent(plan):
    """Its lock does not reach this machine."""
    said, (first, *others) = [], plan
    directory = prepared_job(first).directory
    write_json(directory / "status.json", {"state": "trained", "host": "elsewhere.example"})
    (directory / ".claim").touch()
    lease = directory / ".claim.1"
    write_json(lease, {"host": "elsewhere.example", "machine": "elsewhere.example 1", "pid": 1})
    queue = WorkQueue(plan, said.append)
    assert paths(queue.jobs()) == [run.id for run in others]

    def silent():
        long_ago = time.time() - SILENCE_SECONDS - 1
        os.utime(lease, (long_ago, long_ago))

    for run in others:
        queue.end(run)
    assert queue.wait(silent)
    assert said == [
        f"waiting for runs that other processes are at: {first.title} (on elsewhere.example)"
    ]
    assert paths(queue.jobs()) == [first.id]


def test_each_run_is_looked_at_when_its_turn_comes(plan):
    jobs = WorkQueue(plan, print).jobs()
    assert next(jobs).directory.name == plan[0].id
    execute_all([plan[1]])
    assert paths(jobs) == [plan[2].id]


def test_others_are_waited_for_and_said_so_once(plan):
    said, held = [], plan[0]
    prepared_job(held)
    queue = WorkQueue([held], said.append)
    with claimed(held.directory.path):
        ticks = iter(range(10))

        def tick():
            if next(ticks) == 5:
                held.directory.start()
                held.directory.set_state(RunState.FAILED, Failure(type="E", where="f:1"))
                raise TimeoutError

        with pytest.raises(TimeoutError):
            queue.wait(tick)
    assert said == [f"waiting for runs that other processes are at: {held.title}"]
    assert queue.wait(tick) is False  # it failed there, and is not tried again here


def test_a_run_whose_process_dies_is_done_here(plan):
    held = plan[0]
    prepared_job(held)
    queue = WorkQueue([held], print)
    with claimed(held.directory.path):
        held.directory.start()
        assert paths(queue.jobs()) == []
    assert queue.wait(lambda: None)
    (job,) = queue.jobs()
    assert (job.directory, job.attempts) == (held.directory.path, 1)


def test_a_failed_run_is_tried_again_by_one_call_only(plan):
    bad = plan[0]
    prepared_job(bad)
    bad.directory.start()
    bad.directory.set_state(RunState.FAILED, Failure(type="E", where="f:1"))
    here, elsewhere = WorkQueue([bad], print), WorkQueue([bad], print)
    assert len(list(elsewhere.jobs())) == 1
    assert bad.directory.state is RunState.INTERRUPTED
    bad.directory.start()
    bad.directory.set_state(RunState.FAILED, Failure(type="E", where="f:1"))
    assert paths(here.jobs()) == []
    assert here.wait(lambda: None) is False


def test_a_job_that_another_call_did_meanwhile_is_void(plan):
    (run,) = plan[:1]
    job = prepared_job(run)
    late = Job(job.directory, "cpu", job.evaluations, attempts=0)
    execute(job, lambda: False)
    before = run.directory.read_status()
    worker = subprocess.run(
        [sys.executable, "-m", "txlbench.runs.worker"],
        input=late.to_json() + "\n",
        text=True,
        env=environment(),
    )
    assert worker.returncode == TAKEN
    assert run.directory.read_status() == before


@pytest.mark.usefixtures("one_process")
def test_the_call_waits_for_a_run_of_another_process_and_is_done(plan):
    held = plan[0]
    job = prepared_job(held)
    ready = threading.Event()

    def elsewhere():
        with claimed(held.directory.path):
            ready.set()
            execute(job, lambda: False)
            time.sleep(0.3)

    other = threading.Thread(target=elsewhere)
    other.start()
    ready.wait()
    outcome, watched = run_suite()
    other.join()
    assert outcome.status is ExitStatus.DONE
    assert len(watched.outcomes) == 2
    assert [run.directory.attempts for run in plan] == [1, 1, 1]
    assert "3 seeds" in outcome.table


@pytest.mark.full
@pytest.mark.alone
def test_four_calls_at_once_do_eight_runs_once_each():
    """Real processes on an output that is not there yet."""
    write_spec(seeds=[1, 2, 3, 4], grid={"train.recurrence": [True, False]})
    calls = [start("ablate", "spec.yaml", "--device", "cpu", "--jobs", "2") for _ in range(4)]
    told = [call.communicate(timeout=600) for call in calls]
    assert [call.returncode for call in calls] == [0] * 4, told
    plan = plan_of()
    assert len(plan) == 8
    for run in plan:
        assert run.directory.state is RunState.FINISHED
        assert run.directory.attempts == 1
        assert run.directory.damage() == ""
        assert "Traceback" not in run.directory.log_file.read_text()
    tables = {output.partition("\nrow")[2].partition("\ntable ")[0] for output, _ in told}
    assert len(tables) == 1
    assert len(list(Path("results/trial/figures").glob("*.png"))) == 4
    assert not list(Path("results").rglob(".*.png.*"))
