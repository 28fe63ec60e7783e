"""One run on several devices, as real processes: how they end, and how another number goes on."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs.trial import finished, lines, prepared, write_spec
from txlbench.errors import ExitStatus
from txlbench.records.schema import RunState
from txlbench.runs.train_run import execute
from txlbench.training.checkpoint import load

ROOT = Path(__file__).parents[2]
SECONDS = 120
STEPS = 24
SETTINGS = {
    "train.max_step": STEPS, "train.log_interval": 1, "train.checkpoint_interval": 4,
    "train.batch_chunk": 2, "train.memory_reset": 0.3, "train.memory_reset_from": 0.1,
    "model.dropatt": 0.1,
}  # fmt: skip
ENDLESS = {**SETTINGS, "train.max_step": 10**6, "train.eval_interval": 10**6}


class Worker:
    """A worker process whose run is shared by ranks."""

    def __init__(self, run, job, processes=2):
        self.run = run
        job = replace(job, processes=processes)
        with run.log_file.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "txlbench.runs.worker"],
                stdin=subprocess.PIPE, stdout=log, stderr=log, text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        self.process.stdin.write(job.to_json() + "\n")
        self.process.stdin.flush()

    def wait_for(self, what):
        deadline = time.monotonic() + SECONDS
        while not what():
            assert self.process.poll() is None, self.run.log_file.read_text()[-3000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def wait_for_checkpoint(self):
        self.wait_for((self.run.checkpoints / "last.pt").exists)

    def wait_for_lines(self, count):
        self.wait_for(lambda: self.run.metrics_file.exists() and len(lines(self.run)) >= count)

    def ranks(self):
        """The pids of its ranks, in order."""
        pid = self.process.pid
        found = {}
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                pairs = Path(f"/proc/{child}/environ").read_text().split("\0")
                found |= {int(each[5:]): int(child) for each in pairs if each.startswith("RANK=")}
        return [found[rank] for rank in sorted(found)]

    def end(self):
        """The exit status, once all its processes are gone."""
        ranks = self.ranks() if self.process.poll() is None else []
        status = self.process.wait(SECONDS)
        assert not any(map(lives, ranks))
        return status


def lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def close_to(run, straight):
    """Asserts that a run saw the same data and came to the same numbers."""
    one, other = lines(straight), lines(run)
    assert len(one) == len(other)
    for line, again in zip(one, other, strict=True):
        assert (again["step"], again["tokens"]) == (line["step"], line["tokens"])
        assert again == pytest.approx(line, rel=1e-4)


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.mark.full
@pytest.mark.alone
def test_a_killed_rank_ends_the_run_and_one_process_goes_on():
    write_spec(SETTINGS)
    straight = finished("straight/trial")
    run, job = prepared()
    worker = Worker(run, job)
    worker.wait_for_checkpoint()
    os.kill(worker.ranks()[1], signal.SIGKILL)
    assert worker.end() == ExitStatus.INTERRUPTED
    assert run.state is RunState.INTERRUPTED
    (note,) = run.read_status().notes
    assert note.startswith("rank 1 was ended by SIGKILL, and the others with it; out of memory?")
    assert run.read_facts().devices == 2
    assert 0 < load(run.checkpoints / "last.pt")["progress"]["step"] < STEPS
    assert execute(job, lambda: False) is RunState.FINISHED
    close_to(run, straight)
    assert run.read_facts().devices == 1
    assert any("devices was 2 and is 1" in note for note in run.read_status().notes)


@pytest.mark.full
@pytest.mark.alone
def test_a_run_on_two_devices_ends_as_on_one():
    write_spec(SETTINGS)
    straight = finished("straight/trial")
    run, job = prepared()
    assert Worker(run, job).process.wait(SECONDS) == ExitStatus.DONE
    close_to(run, straight)
    one, other = (each.read_summary().results[0] for each in (straight, run))
    for before, after in zip(one.sweep, other.sweep, strict=True):
        assert after.loss == pytest.approx(before.loss, rel=1e-4)
        assert after.tokens == before.tokens
    assert "2" in json.dumps(run.read_facts().content["devices"])


@pytest.mark.full
@pytest.mark.alone
def test_three_then_two_then_one():
    write_spec({**SETTINGS, "train.batch_size": 12})
    straight = finished("straight/trial")
    run, job = prepared()
    for processes, steps in ((3, 2), (2, 9)):
        worker = Worker(run, job, processes)
        worker.wait_for_lines(steps)
        worker.process.terminate()
        assert worker.end() == ExitStatus.INTERRUPTED
    assert execute(job, lambda: False) is RunState.FINISHED
    close_to(run, straight)


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.parametrize("how", ["terminate", "close", "rank 0", "rank 1"])
def test_a_request_to_stop_reaches_every_rank(how):
    """By a signal to the worker or to one rank, or by the end of the parent."""
    write_spec(ENDLESS)
    run, job = prepared()
    worker = Worker(run, job)
    worker.wait_for_checkpoint()
    if how == "terminate":
        worker.process.terminate()
    elif how == "close":
        worker.process.stdin.close()
    else:
        os.kill(worker.ranks()[int(how[-1])], signal.SIGTERM)
    assert worker.end() == ExitStatus.INTERRUPTED
    assert run.state is RunState.INTERRUPTED
    assert not run.read_status().notes
    assert load(run.checkpoints / "last.pt")["progress"]["step"] == lines(run)[-1]["step"]


@pytest.mark.full
@pytest.mark.alone
def test_ranks_do_not_outlive_the_process_that_holds_the_claim():
    write_spec(ENDLESS)
    run, job = prepared()
    worker = Worker(run, job)
    worker.wait_for_checkpoint()
    ranks = worker.ranks()
    worker.process.kill()
    worker.process.wait()
    deadline = time.monotonic() + 5
    while any(map(lives, ranks)):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert run.current_state is RunState.INTERRUPTED


@pytest.mark.full
@pytest.mark.alone
def test_a_checkpoint_that_is_asked_for_is_written_and_training_goes_on():
    write_spec({**ENDLESS, "train.checkpoint_interval": None})
    run, job = prepared()
    worker = Worker(run, job)
    worker.wait_for_lines(1)
    worker.process.send_signal(signal.SIGUSR1)
    worker.wait_for_checkpoint()
    step = load(run.checkpoints / "last.pt")["progress"]["step"]
    worker.wait_for(lambda: lines(run)[-1]["step"] > step + 1)
    worker.process.terminate()
    assert worker.end() == ExitStatus.INTERRUPTED


@pytest.mark.full
@pytest.mark.alone
def test_what_fails_on_a_rank_is_recorded():
    write_spec({**SETTINGS, "train.lr": 1e30, "train.warmup_step": 0})
    run, job = prepared()
    assert Worker(run, job).process.wait(SECONDS) == ExitStatus.RUN_FAILED
    assert run.state is RunState.DIVERGED
    assert run.read_status().error.type == "Diverged"
