"""Runs on a Ray cluster of two nodes of this machine: nodes and drivers die, no work is lost.

Issues named are those of Ray Tune in which users lost work in the same situation.
"""

import errno
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from mlflow.tracking import MlflowClient

from tests.cli.trial import environment
from tests.runs.executors.ray_cluster import ROOT, TwoNodes, long_runs
from tests.runs.trial import Watched, execute_all, lines, plan_of, write_spec
from txlbench.errors import ExitStatus, UserError
from txlbench.records.claim import is_claimed
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.runs.executors import ray_tasks
from txlbench.tracking.store import store_of

pytestmark = [pytest.mark.full, pytest.mark.alone]
SECONDS = 300


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        nodes = TwoNodes()
        nodes.add()
        yield nodes
        nodes.stop()


@pytest.fixture
def endless_disk(monkeypatch):
    """No disk has room for the checkpoints of a model beyond any memory."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=math.inf))


@pytest.fixture
def nodes(cluster):
    if cluster.second is None:
        cluster.add()
    return cluster


def until(condition, seconds=SECONDS):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def last_step(run):
    return lines(run)[-1]["step"] if run.metrics_file.exists() and lines(run) else 0


class KillSecond(Watched):
    """Kills the second node as soon as a run on it has written a checkpoint and gone on.

    Attributes:
        there: the runs that were on it.
    """

    def __init__(self, nodes, runs):
        super().__init__(on_tick=self._look)
        self._nodes, self._all, self._begin = nodes, runs, time.monotonic()
        self.killed_at, self.there = None, []

    def _look(self):
        assert time.monotonic() < self._begin + SECONDS
        if self.killed_at is not None:
            return
        there = [run for run in self._all if run.state is RunState.RUNNING]
        there = [run for run in there if self._nodes.is_on_second(run.read_status().pid)]
        if any((run.checkpoints / "last.pt").exists() and last_step(run) > 60 for run in there):
            self.there, self.killed_at = there, time.time()
            self._nodes.kill_second()


def assert_steps_were_done_once(run, attempts=1, last=400):
    """But for what was lost since a checkpoint, as lines before it stand with their times."""
    steps = [line["step"] for line in lines(run) if "train_loss" in line]
    assert steps == list(range(10, last + 1, 10))
    timings = list(run.read_timings())
    assert [line.time for line in timings] == sorted(line.time for line in timings)
    assert run.attempts == attempts


def kept_steps(run, killed_at):
    """The steps of the killed attempt that still stand."""
    return [line.step for line in run.read_timings() if line.time < killed_at]


def children_in_mlflow(folder="results/trial"):
    """Steps of the training loss by run id, as MLflow has them; each run once."""
    client = MlflowClient(tracking_uri=store_of(Path(folder)).uri)
    experiment = client.get_experiment_by_name("trial")
    runs = client.search_runs([experiment.experiment_id])
    children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    found = {run.data.tags["txlbench.run_id"]: run for run in children}
    assert len(found) == len(children) == len(runs) - 1
    history = {
        name: client.get_metric_history(run.info.run_id, "train_bpc") for name, run in found.items()
    }
    return {name: sorted(point.step for point in points) for name, points in history.items()}


def test_eight_runs_finish_though_a_node_dies_midway(nodes):
    runs = long_runs(8)
    watched = KillSecond(nodes, runs)
    outcome, _ = nodes.ablate(watched)
    assert outcome.status is ExitStatus.DONE
    assert watched.there
    gone = [line.partition(":")[0] for line in watched.warnings if "its node is gone" in line]
    assert {run.id for run in watched.there} <= set(gone) < {run.id for run in runs}
    for run in runs:
        assert run.state is RunState.FINISHED
        assert_steps_were_done_once(run, 2 if run in watched.there else 1)
    assert any(kept_steps(run, watched.killed_at) for run in watched.there)
    assert children_in_mlflow() == {run.id: list(range(10, 401, 10)) for run in runs}


class Driver:
    """`txlbench ablate --launcher ray` as a process of its own."""

    def __init__(self, nodes, *words):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "txlbench", *nodes.command(*words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(OMP_NUM_THREADS="1"),
            start_new_session=True,
        )

    def end(self):
        said, _ = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, said


def test_a_driver_that_was_killed_and_whose_results_moved_goes_on(nodes):
    """Pending runs are not forgotten (ray #12347), and no path of the first call counts (ray
    #27790, #28082): MLflow, run directories and checkpoints are found where they are now."""
    runs = long_runs(6)
    driver = Driver(nodes)
    until(lambda: sum((run.checkpoints / "last.pt").exists() for run in runs) >= 2)
    os.killpg(driver.process.pid, signal.SIGKILL)
    driver.end()
    until(lambda: not any(is_claimed(run.path) for run in runs), 60)
    time.sleep(5)  # Ray may start what was pending before it sees that the driver is gone
    until(lambda: not any(is_claimed(run.path) for run in runs), 60)
    before = {run.id: (run.attempts, last_step(run), run.current_state) for run in runs}
    assert sum(step > 0 for _, step, _ in before.values()) >= 2
    Path("results").rename("moved")
    began = time.time()
    code, said = Driver(nodes, "--out", "moved/trial").end()
    assert code == 0, said
    for run in (RunDirectory(Path("moved/trial/runs") / run.id) for run in runs):
        attempts, step, state = before[run.id]
        assert run.state is RunState.FINISHED
        assert_steps_were_done_once(run, attempts + (state is not RunState.FINISHED))
        # its lifeline closed, so that it wrote a checkpoint before it ended
        assert max(kept_steps(run, began), default=0) == step - step % 10
    assert not Path("results").exists()
    assert set(children_in_mlflow("moved/trial")) == {run.id for run in runs}


def test_failed_runs_are_done_again_when_asked_and_others_are_not(nodes, endless_disk):
    """ray #16891: resuming the errored trials did nothing."""
    bad = {"label": "bad", "set": {"model.d_inner": 2**42}}
    write_spec(rows=[bad, {"label": "good", "set": {"train.lr": 0.02}}])
    (first, second), attempts = plan_of(), []
    for retry in (False, False, True):
        outcome, _ = nodes.ablate(retry=retry)
        assert outcome.status is ExitStatus.RUN_FAILED
        attempts.append((first.directory.attempts, second.directory.attempts))
    assert attempts == [(1, 1), (1, 1), (2, 1)]
    assert first.directory.read_status().error.type == "RuntimeError"
    assert "Traceback" in first.directory.log_file.read_text()


def test_a_stopped_grid_can_be_gone_on_with(nodes, endless_disk):
    """ray #30584: fail_fast marked pending trials as ended, so that nothing could be restored."""
    bad = [{"label": f"bad {n}", "set": {"model.d_inner": 2**42 + n}} for n in range(2)]
    good = [{"label": f"good {n}", "set": {"train.lr": 0.02 + n / 100}} for n in range(4)]
    write_spec(rows=bad + good)
    outcome, watched = nodes.ablate(jobs=2)
    assert outcome.status is ExitStatus.RUN_FAILED
    assert any("failed alike" in line for line in watched.warnings)
    states = {run.labels[0]: run.directory.current_state for run in plan_of()}
    assert all(states[row["label"]] is RunState.FAILED for row in bad)
    assert RunState.QUEUED in states.values()
    begun = {run.labels[0]: run.directory.attempts for run in plan_of()}
    outcome, _ = nodes.ablate(only=("good*",))
    assert outcome.status is ExitStatus.DONE
    # A good run that had begun beside the second bad one was stopped, and takes a second attempt.
    over = (RunState.FAILED, RunState.FINISHED)
    expected = {label: count + (states[label] not in over) for label, count in begun.items()}
    assert {run.labels[0]: run.directory.attempts for run in plan_of()} == expected


def test_what_is_still_to_be_run_follows_from_the_file(nodes):
    """ray #30861: a restored searcher had forgotten which trials were to come. Stopped by Ctrl-C,
    the grid goes on with exactly the runs it lacks, and those of a seed that was added."""
    runs = long_runs(3)

    def interrupt():
        if any((run.checkpoints / "last.pt").exists() for run in runs):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nodes.ablate(Watched(interrupt), jobs=2)
    stopped = [run for run in runs if run.attempts]
    assert {run.state for run in stopped} == {RunState.INTERRUPTED}
    assert all((run.checkpoints / "last.pt").exists() for run in stopped)
    assert not any(is_claimed(run.path) for run in runs)
    steps = {run: last_step(run) for run in stopped}
    began = time.time()
    every = long_runs(4)
    outcome, watched = nodes.ablate()
    assert outcome.status is ExitStatus.DONE
    assert len(watched.outcomes) == 4
    for run in every:
        assert_steps_were_done_once(run, 2 if run in stopped else 1)
        if run in stopped:  # asked to stop, a run loses no step
            assert max(kept_steps(run, began), default=0) == steps[run]


class Apart:
    """Nodes that do not see the driver's disk, as far as they can tell."""

    def __init__(self, patch, texts=True):
        patch.setattr(ray_tasks, "TOKEN", ".unseen")
        if not texts:
            patch.setattr(ray_tasks, "own_checksum", lambda _: "of another text")


@pytest.mark.parametrize("texts", [True, False])
def test_without_a_shared_disk_results_are_brought_back(nodes, monkeypatch, texts):
    """The same, bit for bit, as of runs that were trained here; the text is sent where it lacks."""
    write_spec(seeds=[1, 2])
    execute_all(plan_of(out=Path("here")))
    Apart(monkeypatch, texts)
    outcome, _ = nodes.ablate()
    assert outcome.status is ExitStatus.DONE
    for one, other in zip(plan_of(out=Path("here")), plan_of(), strict=True):
        one, other = one.directory, other.directory
        assert one.metrics_file.read_bytes() == other.metrics_file.read_bytes()
        (expected,), (found,) = (each.read_summary().results for each in (one, other))
        assert (found.init.loss, found.best.loss) == (expected.init.loss, expected.best.loss)
        assert (other.checkpoints / "best.pt").exists()
        assert other.read_config() == one.read_config()
        assert "txlbench-" not in (other.path / "config.yaml").read_text()
        assert not is_claimed(other.path)


def test_without_a_shared_disk_a_dead_node_loses_what_was_not_brought_back(nodes, monkeypatch):
    """ray #36062: results of a node that had died were missing after restoring."""
    runs = long_runs(3, **{"train.max_step": 1500})
    Apart(monkeypatch)
    watched = KillSecond(nodes, runs)
    outcome, _ = nodes.ablate(watched)
    assert outcome.status is ExitStatus.DONE
    assert watched.there
    for run in runs:
        steps = [line["step"] for line in lines(run) if "train_loss" in line]
        assert steps == list(range(10, 1501, 10))
    for run in watched.there:
        assert run.attempts == 2
        assert kept_steps(run, watched.killed_at)


def test_a_full_disk_interrupts_a_run_and_more_room_lets_it_go_on(nodes, monkeypatch):
    """ray #23674: no space left, and after a restart with more space no space left again."""
    Apart(monkeypatch)
    full, other = long_runs(2, **{"train.max_step": 1500})  # longer than what is brought back once
    receive = ray_tasks.receive_all

    def refuse(path, parts, get):
        if path == full.path and (full.checkpoints / "last.pt").exists():
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        receive(path, parts, get)

    with monkeypatch.context() as disk:
        disk.setattr(ray_tasks, "receive_all", refuse)
        outcome, _ = nodes.ablate()
    assert outcome.status is ExitStatus.RUN_FAILED
    assert full.state is RunState.INTERRUPTED
    assert "No space left" in full.read_status().error.message
    assert other.state is RunState.FINISHED
    outcome, _ = nodes.ablate()
    assert outcome.status is ExitStatus.DONE
    assert other.attempts == 1
    assert_steps_were_done_once(full, attempts=2, last=1500)


def test_a_checkpoint_is_written_when_asked_and_the_run_goes_on(nodes):
    (run,) = long_runs(1, **{"train.eval_interval": 10**6, "train.max_step": 1000})
    asked, seen = [], []

    def look():
        if not asked and last_step(run) > 20:
            asked.append(os.kill(os.getpid(), signal.SIGUSR1))
        if (run.checkpoints / "last.pt").exists() and last_step(run) < 1000:
            seen.append(last_step(run))

    outcome, _ = nodes.ablate(Watched(look))
    assert outcome.status is ExitStatus.DONE
    assert seen
    assert run.attempts == 1


def test_ctrl_c_in_a_terminal_stops_and_a_second_one_leaves_at_once(nodes):
    runs = long_runs(2, **{"train.eval_interval": 10**6, "train.max_step": 10**6})
    driver = Driver(nodes)
    until(lambda: all(last_step(run) > 20 for run in runs))
    os.killpg(driver.process.pid, signal.SIGINT)
    time.sleep(0.2)
    os.killpg(driver.process.pid, signal.SIGINT)
    begin = time.monotonic()
    driver.process.wait(SECONDS)  # MLflow's mirror keeps the pipe open a little longer
    assert time.monotonic() - begin < 10
    code, said = driver.end()
    assert code == ExitStatus.INTERRUPTED, said
    until(lambda: not any(is_claimed(run.path) for run in runs), 60)
    for run in runs:
        assert run.current_state is RunState.INTERRUPTED
        assert (run.checkpoints / "last.pt").exists()


def test_ctrl_c_stops_runs_on_a_local_cluster(folder):
    """The terminal sends it to the whole group, Ray's own processes as well."""
    (run,) = long_runs(1, **{"train.eval_interval": 10**6, "train.max_step": 10**6})
    words = ["ablate", "spec.yaml", "--launcher", "ray", "--address", "local"]
    driver = subprocess.Popen(
        [sys.executable, "-m", "txlbench", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(OMP_NUM_THREADS="1"),
        start_new_session=True,
    )
    until(lambda: last_step(run) > 20)
    os.killpg(driver.pid, signal.SIGINT)
    said, _ = driver.communicate(timeout=SECONDS)
    assert driver.returncode == ExitStatus.INTERRUPTED, said
    assert "stopping; runs write their checkpoints" in said
    assert "Traceback" not in said
    assert run.state is RunState.INTERRUPTED
    assert (run.checkpoints / "last.pt").exists()


def test_what_no_node_has_is_told(nodes):
    write_spec()
    warned = []

    def give_up():
        raise KeyboardInterrupt

    watched = Watched(give_up)
    with pytest.raises(KeyboardInterrupt):
        nodes.ablate(watched, resources=["cpus=64", "special=1"])
    assert any("CPU 64, special 1" in line for line in watched.warnings), warned
    (run,) = plan_of()
    assert run.directory.attempts == 0
    with pytest.raises(UserError, match="gpus=1: not with --device cpu"):
        nodes.ablate(resources=["gpus=1"])


def test_what_this_machine_lacks_is_told_without_what_it_has(monkeypatch):
    node = {"Alive": True, "Resources": {"CPU": 2.0}}
    monkeypatch.setattr(ray_tasks.ray, "nodes", lambda: [node])
    options = {"num_cpus": 1, "num_gpus": 3, "resources": {}}
    with pytest.raises(UserError) as refused:
        ray_tasks._check_room(options, True, print)
    assert str(refused.value).startswith("--resource: this machine lacks GPU 3 (it has 0); ")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "127.0.0.1:99999"])
def test_an_address_where_nothing_listens_is_told_at_once(address):
    began = time.monotonic()
    with pytest.raises(UserError) as refused:
        ray_tasks._connect(address)
    assert str(refused.value).startswith(f"--address {address}: no Ray cluster there (")
    assert time.monotonic() - began < 5
