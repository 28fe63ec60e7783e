"""Rows that fail: the others go on, unless the fault is common to all."""

import math
import shutil
from types import SimpleNamespace

import pytest

from tests.runs.in_process import run_suite
from tests.runs.trial import Watched, plan_of, prepared_job, write_spec
from txlbench.errors import ExitStatus
from txlbench.records.schema import Failure, RunState
from txlbench.runs import ablation

pytestmark = pytest.mark.usefixtures("one_process", "endless_disk")
NEVER_FITS = 2**42  # weights beyond any address space: out of memory on every machine


@pytest.fixture
def endless_disk(monkeypatch):
    """Memory is what lacks here; no disk has room for the checkpoints of such a model either."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=math.inf))


def failing(*labels):
    """A row each, other runs all; those called bad run out of memory."""
    return [
        {"label": label, "set": {"train.lr": number / 100, "model.d_inner": _width(label)}}
        for number, label in enumerate(labels, 1)
    ]


def _width(label):
    return NEVER_FITS if "bad" in label else 24


def test_one_row_that_fails_does_not_stop_the_others():
    write_spec(rows=failing("one", "bad", "three"))
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.RUN_FAILED
    assert [state for _, state in watched.outcomes] == ["finished", "failed", "finished"]
    assert "failed" in outcome.table
    (bad,) = plan_of(only=("bad",))
    error = bad.directory.read_status().error
    assert error.type == "RuntimeError"
    assert "allocate" in error.message or "memory" in error.message
    assert "Traceback" in bad.directory.error_file.read_text()


def test_a_fault_common_to_all_burns_two_runs():
    write_spec(rows=failing("bad 1", "bad 2", "bad 3", "bad 4"))
    outcome, watched = run_suite(jobs=1)
    assert outcome.status is ExitStatus.RUN_FAILED
    assert watched.outcomes == [("bad 1", "failed"), ("bad 2", "failed")]
    long, memory, warning = watched.warnings
    assert "of memory" in memory
    assert "4 runs to train" in long
    assert warning.startswith("the first two runs failed alike (RuntimeError: ")
    assert "--keep-going" in warning
    assert [run.directory.state for run in plan_of()[2:]] == [RunState.QUEUED] * 2


def test_keep_going_overrides():
    write_spec(rows=failing("bad 1", "bad 2", "three"))
    outcome, watched = run_suite(jobs=1, keep_going=True)
    assert outcome.status is ExitStatus.RUN_FAILED
    assert [state for _, state in watched.outcomes] == ["failed", "failed", "finished"]
    assert not any("failed alike" in warning for warning in watched.warnings)


def test_two_failures_after_a_success_stop_nothing():
    write_spec(rows=failing("one", "bad 2", "bad 3", "four"))
    _, watched = run_suite(jobs=1)
    assert [state for _, state in watched.outcomes] == ["finished", "failed", "failed", "finished"]


ERROR = Failure(type="ValueError", message="m", where="f:1")


@pytest.mark.parametrize(
    ("second", "goes_on"),
    [
        (ERROR, False),
        (ERROR.model_copy(update={"message": "other numbers"}), False),
        (ERROR.model_copy(update={"where": "f:2"}), True),
        (ERROR.model_copy(update={"type": "KeyError"}), True),
    ],
)
def test_faults_are_alike_if_kind_and_place_are(second, goes_on):
    write_spec(rows=failing("1", "2"))
    common = ablation.FailFast(False, Watched())
    for run, error in zip(plan_of(), (ERROR, second), strict=True):
        prepared_job(run)
        run.directory.set_state(RunState.FAILED, error)
        allowed = common.allows_more(run, RunState.FAILED)
    assert allowed is goes_on


def test_a_warning_of_a_common_fault_is_given_once():
    """Runs that were under way beside the first two end later."""
    write_spec(rows=failing("bad 1", "bad 2", "bad 3"))
    watched = Watched()
    common = ablation.FailFast(False, watched)
    for run, expected in zip(plan_of(), (True, False, False), strict=True):
        prepared_job(run)
        run.directory.set_state(RunState.FAILED, ERROR)
        assert common.allows_more(run, RunState.FAILED) is expected
    assert len(watched.warnings) == 1


def test_failed_runs_are_tried_again_only_when_asked():
    write_spec(rows=failing("one", "bad"))
    run_suite()
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.RUN_FAILED
    assert watched.outcomes == []
    assert watched.finished_before == 1
    assert watched.warnings == ["bad (seed 1) failed before and is not tried again without --retry"]
    _, watched = run_suite(retry=True)
    assert watched.outcomes == [("bad", "failed")]
    assert plan_of(only=("bad",))[0].directory.read_status().attempts == 2
