"""`txlbench ablate` as people use it: interrupted, typed again, typed once more; no network."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests.cli.trial import call, environment, start
from tests.runs.trial import alive, plan_of, prepared_job, snapshot, write_spec, write_text
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.schema import RunState
from txlbench.runs.train_run import execute

NO_NETWORK = '''
"""Every process of a test starts with this: whatever is not on this machine is out of reach."""
import os, socket

def _refuse(*arguments, **named):
    with open(os.environ["REACHED_OUT"], "a") as file:
        file.write(f"{arguments}\\n")
    raise OSError(101, "Network is unreachable")

class _Socket(socket.socket):
    def connect(self, address):
        if self.family != socket.AF_UNIX:
            _refuse(address)
        return super().connect(address)
    connect_ex = connect

socket.socket = _Socket
socket.getaddrinfo = socket.gethostbyname = socket.create_connection = _refuse
'''
SECONDS = 150
LONG = {"train.max_step": 200, "train.eval_interval": 70, "train.log_interval": 1}
LONGER = {"train.max_step": 1800, "train.eval_interval": 700, "train.log_interval": 6}
"""Seconds of training, so that a signal lands in its middle on a busy machine too."""


def offline(folder):
    """The environment of a machine without network."""
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(NO_NETWORK)
    return environment(
        before=[str(folder / "site")],
        TXLBENCH_DATA=str(folder / "data"),
        REACHED_OUT=str(folder / "reached-out.txt"),
    )


def processes_of(folder):
    """Processes that work in `folder`, where the system tells."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if path.readlink() == folder:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


@contextmanager
def threads(count):
    """As many threads as a run had: sums depend on it in their last digits."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def wait_until(condition, process):
    """Waits while `process` works."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def logged(runs, lines):
    """Whether each run has this many metric lines."""
    return all(
        run.metrics_file.exists() and run.metrics_file.read_bytes().count(b"\n") >= lines
        for run in runs
    )


class Story:
    """What happened: interrupted in the middle, finished at the second call, and a third one."""

    def __init__(self, folder):
        self.folder, env = folder, offline(folder)
        write_text(folder / "mine.txt")
        write_spec(LONGER)
        (self.run,) = (run.directory for run in plan_of())
        arguments = ("ablate", "spec.yaml", "--device", "cpu")
        process = start(*arguments, env=env)
        try:
            wait_until(lambda: logged([self.run], 5), process)
            pid = self.run.read_status().pid
            process.send_signal(signal.SIGINT)
            self.interrupted = process.communicate(timeout=SECONDS)
            self.status = process.returncode
        finally:
            process.kill()
        self.left = [*filter(alive, [pid]), *processes_of(folder)]
        self.state, self.partial = self.run.state, self.run.metrics_file.read_bytes()
        self.second = call(*arguments, env=env, timeout=SECONDS)
        self.before = snapshot(folder / "results/trial/runs")
        self.third = call(*arguments, env=env, timeout=SECONDS)
        self.after = snapshot(folder / "results/trial/runs")


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    folder = tmp_path_factory.mktemp("story")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TXLBENCH_DATA", str(folder / "data"))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        yield Story(folder)


def test_an_interrupt_exits_with_130_and_says_so(story):
    assert story.status == 130
    assert story.interrupted[1].splitlines()[-1] == "interrupted"
    assert "Traceback" not in story.interrupted[1]


def test_no_process_outlives_the_interrupt(story):
    assert story.left == []


def test_an_interrupted_run_keeps_what_it_has(story):
    assert story.state is RunState.INTERRUPTED
    assert (story.run.checkpoints / "last.pt").exists()
    assert 5 <= story.partial.count(b"\n") < 300


def test_the_next_call_completes_it(story):
    status, output, errors = story.second
    assert status == 0, errors
    assert "1 run, 1 at a time" in output
    assert "trial (seed 1): finished" in output
    assert "MLflow" in output
    assert story.run.read_status().attempts == 2
    assert story.run.metrics_file.read_bytes().startswith(story.partial)


def test_the_numbers_are_those_of_a_run_that_was_never_interrupted(story):
    (planned,) = plan_of(out=Path("straight"))
    run, straight = story.run, planned.directory
    with threads(run.read_facts().threads):
        execute(prepared_job(planned), lambda: False)
    assert straight.metrics_file.read_bytes() == run.metrics_file.read_bytes()
    sweeps = [each.read_summary().results[0].sweep for each in (run, straight)]
    assert sweeps[0] == sweeps[1]


def test_a_finished_experiment_says_so_and_is_left_as_it_is(story):
    status, output, errors = story.third
    assert status == 0, errors
    assert "nothing to run, 1 done before" in output
    assert story.after == story.before
    assert story.second[1].splitlines()[-12:] == output.splitlines()[-12:]


def test_everything_is_there_without_a_network(story):
    results = story.folder / "results"
    experiment = ExperimentDirectory(results / "trial")
    assert all(experiment.table(suffix).stat().st_size for suffix in ("csv", "md", "tex"))
    assert list(experiment.figures.glob("*.png"))
    with sqlite3.connect(results / "mlflow.db") as store:
        names = [row[0] for row in store.execute("select name from runs")]
    assert len(names) == 2  # the run and its parent
    assert not (story.folder / "reached-out.txt").exists()


def test_the_network_is_really_cut(story):
    """The test above would notice a process that reaches out."""
    env = {**offline(story.folder), "REACHED_OUT": str(story.folder / "probe.txt")}
    code = "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert "Network is unreachable" in done.stderr
    assert (story.folder / "probe.txt").exists()
    assert socket.socket.__name__ == "socket"  # here it is not


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_stop_by_themselves_when_their_parent_is_killed(tmp_path, monkeypatch, number):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    write_text(tmp_path / "mine.txt")
    write_spec({**LONG, "train.max_step": 10**6}, seeds=[1, 2])
    runs = [run.directory for run in plan_of()]
    arguments = ("ablate", "spec.yaml", "--device", "cpu", "--jobs", "2")
    process = start(*arguments, env=offline(tmp_path))
    try:
        wait_until(lambda: logged(runs, 5), process)
        pids = [run.read_status().pid for run in runs]
        process.send_signal(number)
        process.wait(30)
        deadline = time.monotonic() + 60
        while any(map(alive, pids)) or processes_of(tmp_path):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        process.kill()
        process.communicate()
    assert [run.state for run in runs] == [RunState.INTERRUPTED] * 2


@pytest.mark.full
@pytest.mark.alone
def test_a_run_killed_again_and_again_ends_as_one_that_was_not(tmp_path, monkeypatch):
    """SIGKILL of the whole tree at any moment; the next call goes on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    write_text(tmp_path / "mine.txt")
    write_spec({**LONG, "train.max_step": 1000, "train.eval_interval": 7})
    (run,) = (planned.directory for planned in plan_of())
    arguments = ("ablate", "spec.yaml", "--device", "cpu")
    for lines in (1, 150, 350, 600):
        process = start(*arguments, env=offline(tmp_path))
        try:
            wait_until(
                lambda lines=lines: run.state is RunState.RUNNING and logged([run], lines), process
            )
            for pid in (process.pid, run.read_status().pid):
                os.kill(pid, signal.SIGKILL)
        finally:
            process.kill()
            process.communicate()
    assert call(*arguments, env=offline(tmp_path))[0] == 0
    (straight,) = plan_of(out=Path("straight"))
    with threads(run.read_facts().threads):
        execute(prepared_job(straight), lambda: False)
    assert run.metrics_file.read_bytes() == straight.directory.metrics_file.read_bytes()
