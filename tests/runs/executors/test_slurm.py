"""Jobs of a cluster, in submitit's local queue; `tests/services` has the same with a real Slurm."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.runs.executors import cluster_cases as cases
from tests.runs.trial import plan_of, write_spec
from txlbench.errors import UserError
from txlbench.records.schema import RunState
from txlbench.runs.executors import slurm
from txlbench.runs.executors.executor import Launch
from txlbench.runs.executors.slurm import SlurmExecutor, _options
from txlbench.runs.executors.slurm_job import JobRecord, as_argument, run_submitted
from txlbench.runs.job import Job
from txlbench.runs.plan import Request

LOCAL = "cluster=local"


def request(*resources, **options):
    return Request(Path("spec.yaml"), launch=Launch.of("slurm", None, resources), **options)


def test_where_nothing_can_be_submitted_it_is_said_in_one_line(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match=r"no sbatch.*--launcher process") as refused:
        SlurmExecutor(request(), 1)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("resource", "remedy"),
    [
        ("signal_delay_s=soon", "as signal_delay_s=90"),
        ("nodes=0", "as nodes=1"),
        ("job-name=mine", "leave it out"),
        ("array=1-4", "--jobs N"),
        ("array_parallelism=2", "--jobs N"),
        ("additional_parameters=x", "leave it out"),
        ("partition=gpu", "leave it out"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_submitted(resource, remedy):
    with pytest.raises(UserError) as refused:
        SlurmExecutor(request(LOCAL, resource), 1)
    assert str(refused.value).startswith(f"--resource {resource}: ")
    assert remedy in str(refused.value)


def test_resources_become_options_of_sbatch(tmp_path):
    asked = request("cpus=8", "gpus=1", "memory=32GiB", "partition=gpu", "time=24:00:00", "nice=5")
    options = _options(asked.launch, 8, "cuda", 4)
    batch = slurm.submitit.SlurmExecutor
    text = slurm.submitit.slurm.slurm._make_sbatch_string("true", tmp_path, **options)
    lines = {line.removeprefix("#SBATCH --") for line in text.splitlines() if "#SBATCH" in line}
    assert batch is not None
    assert {
        "cpus-per-task=8", "gpus-per-node=1", "mem=32768M", "partition=gpu", "time=24:00:00",
        "nice=5", "requeue", "signal=USR2@90",
    } <= lines  # fmt: skip
    assert not [line for line in lines if line.startswith("wckey")]


def test_without_resources_a_job_has_a_core_and_the_time_of_its_partition(tmp_path):
    options = _options(request().launch, 1, "cpu", 4)
    text = slurm.submitit.slurm.slurm._make_sbatch_string("true", tmp_path, **options)
    assert "--cpus-per-task=1\n" in text
    assert not [word for word in ("--time", "--mem", "--gpus") if word in text]


def test_a_job_that_another_one_replaced_does_nothing(folder, monkeypatch, capsys):
    monkeypatch.setenv("SUBMITIT_LOCAL_JOB_ID", "7")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    run = folder / "results" / "trial" / "runs" / "a"
    run.mkdir(parents=True)
    JobRecord.of(run).write("8")
    run_submitted(as_argument(Job(run, "cpu", (), 0), 1))
    assert "given to job 8" in capsys.readouterr().out
    assert list(run.iterdir()) == []


class Queue:
    """A cluster whose jobs start and end when the test says so."""

    seconds_between_looks = 0.0

    def __init__(self):
        self.ids, self.submitted, self.sent = set(), [], []

    def submit(self, arguments):
        names = [str(len(self.submitted) + number) for number, _ in enumerate(arguments)]
        self.submitted += arguments
        self.ids |= set(names)
        return names

    def queued(self):
        return set(self.ids)

    def drop_waiting(self, ids):
        self.ids -= set(ids)

    def send(self, ids, number):
        self.sent += [(name, number) for name in ids]

    cancel = drop_waiting


@pytest.fixture
def queue(monkeypatch):
    queue = Queue()
    monkeypatch.setattr(slurm, "_ThisMachine", lambda folder: queue)
    return queue


def executor(jobs):
    made = SlurmExecutor(request(LOCAL), len(jobs))
    for job in jobs:
        made.start(job)
    return made


def prepared(seeds):
    write_spec(seeds=seeds)
    return [
        run.directory.path.mkdir(parents=True)
        or run.directory.write_config(run.config, {}, "A")
        or Job(run.directory.path, "cpu", run.evaluations, 0)
        for run in plan_of()
    ]


def test_a_later_call_waits_for_jobs_that_are_queued_still(queue):
    jobs = prepared([1, 2, 3])
    assert executor(jobs[:2]).collect() == []
    queue.ids.remove("1")  # which left the queue for whatever reason
    again = executor(jobs)
    assert again.collect() == []
    given = [Path(json.loads(json.loads(each)["job"])["directory"]) for each in queue.submitted]
    assert given == [job.directory for job in (jobs[0], jobs[1], jobs[1], jobs[2])]
    assert again.running == 3


def test_the_end_of_a_job_is_told_once_with_the_state_of_its_run(queue):
    jobs = prepared([1, 2, 3])
    states = [RunState.FINISHED, RunState.FAILED, RunState.INTERRUPTED]
    runs = [run.directory for run in plan_of()]
    made = executor(jobs)
    assert made.collect() == []
    for run, state in zip(runs, states, strict=True):
        run.start()
        run.set_state(state)
    assert made.collect() == list(zip(jobs[:2], states, strict=False))
    assert made.collect() == []  # an interrupted run waits in the queue to go on
    queue.ids.clear()
    assert made.collect() == [(jobs[2], RunState.INTERRUPTED)]
    assert made.running == 0


def test_a_job_that_vanished_is_named_with_its_log(queue):
    (job,) = prepared([1])
    made = executor([job])
    made.collect()
    queue.ids.clear()
    assert made.collect() == [(job, RunState.INTERRUPTED)]
    (run,) = plan_of()
    error = str(run.directory.read_status().error)
    assert "job 0 ended from outside" in error
    assert "slurm/0_0_log.out" in error


def test_all_jobs_are_asked_to_stop_and_those_that_wait_are_dropped(queue):
    made = executor(prepared([1, 2]))
    made.collect()
    made.save()
    made.stop()
    assert {number for _, number in queue.sent} == {signal.SIGUSR1, signal.SIGINT}
    assert len(queue.sent) == 4
    assert (queue.ids, made.running) == (set(), 0)


# Real processes


def processes_of(job):
    """The processes below a local job's controller."""
    found = Path(f"/proc/{job}/task/{job}/children").read_text().split()
    return [int(each) for each in found]


def preempt(job):
    for pid in processes_of(job):
        os.kill(pid, signal.SIGUSR2)


@pytest.mark.full
@pytest.mark.alone
def test_a_job_makes_room_and_goes_on():
    cases.a_job_makes_room_and_goes_on(preempt, LOCAL)


@pytest.mark.full
@pytest.mark.alone
def test_four_runs_finish():
    cases.four_runs_finish(LOCAL)


@pytest.mark.full
@pytest.mark.alone
def test_a_driver_is_killed_and_called_again():
    cases.a_driver_is_killed_and_called_again(LOCAL)


@pytest.mark.full
@pytest.mark.alone
def test_an_interrupt_stops_the_jobs_with_a_checkpoint():
    cases.an_interrupt_stops_the_jobs_with_a_checkpoint(lambda: True, LOCAL)
