"""The process of a run: how it ends, what it leaves, and that it does not outlive its parent."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.execution.trial import plan_of, prepared_job, write_spec
from txlbench.errors import ExitStatus, UserError
from txlbench.execution.failure import describe, record_failure
from txlbench.records.run_directory import RunDirectory
from txlbench.records.states import RunState
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
    assert status["state"] == state
    assert status["error"]["type"] == type(error).__name__
    assert status["error"]["message"] == (str(error) or type(error).__name__)
    assert status["error"]["where"].startswith(f"{__file__}:")
    assert "Traceback" in run.error_file.read_text()


def test_messages_are_one_line_of_bounded_length():
    assert describe(caught(ValueError("a\n  b" + "c" * 10_000)))["message"][:5] == "a bcc"
    assert len(describe(caught(ValueError("c" * 10_000)))["message"]) == 500


def test_failures_alike_have_equal_places():
    one, two = (describe(caught(UserError("x"))) for _ in range(2))
    assert one["where"] == two["where"]
    assert describe(UserError("never raised"))["where"] == "?"


def test_a_run_stops_with_a_checkpoint_when_its_parent_is_gone():
    """The end of the pipe is all that a process learns of a parent that was killed."""
    write_spec({"train.max_step": 10**6, "train.log_interval": 1, "train.eval_interval": 10**6})
    (run,) = plan_of()
    job = prepared_job(run)
    worker = subprocess.Popen(
        [sys.executable, "-m", "txlbench.execution.worker"],
        stdin=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "TXLBENCH_DATA": "data", "PATH": ""},
    )
    try:
        worker.stdin.write(job.to_json() + "\n")
        worker.stdin.flush()
        deadline = time.monotonic() + 100
        while not run.directory.metrics_file.exists():
            assert worker.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert run.directory.read_status()["pid"] == worker.pid
        worker.stdin.close()
        assert worker.wait(60) == ExitStatus.INTERRUPTED
    finally:
        worker.kill()
        worker.wait()
    assert run.directory.state is RunState.INTERRUPTED
    assert (run.directory.checkpoints / "last.pt").exists()
