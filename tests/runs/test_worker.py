"""The process of a run: how it ends, what it leaves, and that it does not outlive its parent."""

import errno
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runs.trial import plan_of, prepared_job, write_spec
from txlbench.errors import ExitStatus, UserError
from txlbench.files import last_json_line
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import RunState
from txlbench.runs.failure import describe, record_failure
from txlbench.training.checkpoint import load
from txlbench.training.loop import Diverged


def caught(error):
    try:
        raise error
    except BaseException as raised:
        return raised


@pytest.mark.parametrize(
    ("error", "state"),
    [(Diverged("at step 3"), "diverged"), (ValueError("x"), "failed"), (MemoryError(), "failed")],
)
def test_a_failure_is_recorded_with_its_traceback(folder, error, state):
    run = RunDirectory(folder)
    record_failure(run, caught(error))
    status = run.read_status()
    assert status.state == state
    assert status.error.type == type(error).__name__
    assert status.error.message.startswith(str(error) or "out of memory: ")
    assert status.error.where.startswith(f"{__file__}:")
    assert "Traceback" in run.error_file.read_text()


def test_a_full_disk_is_no_fault_of_the_run(folder):
    run, error = RunDirectory(folder), OSError(errno.ENOSPC, "No space left on device", "last.pt")
    assert record_failure(run, caught(error)) is RunState.INTERRUPTED
    status = run.read_status()
    assert status.state == "interrupted"
    assert "No space left on device: 'last.pt'" in status.error.message


def test_messages_are_one_line_of_bounded_length():
    assert describe(caught(ValueError("a\n  b" + "c" * 10_000))).message[:5] == "a bcc"
    assert len(describe(caught(ValueError("c" * 10_000))).message) == 500


def test_failures_alike_have_equal_places():
    one, two = (describe(caught(UserError("x"))) for _ in range(2))
    assert one.where == two.where
    assert describe(UserError("never raised")).where == "?"


ENDLESS = {"train.max_step": 10**6, "train.log_interval": 1, "train.eval_interval": 10**6}


class Started:
    """A worker of its own on an endless run.

    Attributes:
        run: the directory.
        process: with its standard input open.
    """

    def __init__(self):
        write_spec(ENDLESS)
        (planned,) = plan_of()
        self.run, job = planned.directory, prepared_job(planned)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "txlbench.runs.worker"],
            stdin=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": str(Path(__file__).parents[2]), "TXLBENCH_DATA": "data", "PATH": ""},
        )
        self.process.stdin.write(job.to_json() + "\n")
        self.process.stdin.flush()

    def wait_until(self, condition):
        deadline = time.monotonic() + 100
        while not condition():
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)

    @property
    def saved_step(self):
        last = self.run.checkpoints / "last.pt"
        return load(last)["progress"]["step"] if last.exists() else 0

    def logged(self, step):
        return (last_json_line(self.run.metrics_file) or {}).get("step", 0) > step


@pytest.fixture
def started():
    worker = Started()
    yield worker
    worker.process.kill()
    worker.process.communicate()


@pytest.mark.full
def test_a_run_saves_when_asked_and_stops_with_a_checkpoint_when_its_parent_is_gone(started):
    """SIGUSR1, twice; then the end of the pipe, all that it learns of a parent that was killed."""
    started.wait_until(lambda: started.logged(0))
    assert started.run.read_status().pid == started.process.pid
    assert started.saved_step == 0
    for _ in range(2):
        before = started.saved_step
        started.process.send_signal(signal.SIGUSR1)
        started.wait_until(lambda before=before: started.saved_step > before)
        started.wait_until(lambda: started.logged(started.saved_step + 1))
    before = started.saved_step
    started.process.stdin.close()
    assert started.process.wait(60) == ExitStatus.INTERRUPTED
    assert started.run.state is RunState.INTERRUPTED
    assert started.saved_step > before
    assert last_json_line(started.run.metrics_file)["step"] == started.saved_step
