"""The ablation as a whole: what is run, what is left alone, and what is said of it.

Runs are executed in this process here; `test_pool` has real ones, and the tests of the command
line have all of it together.
"""

import os
import socket
import time
from pathlib import Path

import pytest

from tests.execution.trial import (
    Watched,
    execute_all,
    plan_of,
    prepared_job,
    snapshot,
    stopping_after,
    write_spec,
    write_text,
)
from txlbench.errors import ExitStatus, UserError
from txlbench.execution import suite
from txlbench.execution.request import Request
from txlbench.execution.runner import execute
from txlbench.execution.suite import ablate
from txlbench.execution.worker import record_failure
from txlbench.files import write_json
from txlbench.records.run_directory import RunDirectory
from txlbench.records.states import RunState
from txlbench.reporting import report


class OneProcess:
    """Runs jobs one after the other in this process, and records failures as a worker does."""

    def __init__(self, devices, environment):
        self.devices = devices

    def run(self, jobs, ended, tick):
        for job in jobs:
            tick()
            try:
                state = execute(job, lambda: False)
            except Exception as error:
                record_failure(RunDirectory(job.directory), error)
                state = RunDirectory(job.directory).state
            if not ended(job, state):
                return


class NoMirror:
    """MLflow's part has tests of its own, and takes seconds to start."""

    def __init__(self, directory):
        self.followed = False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def follow(self):
        self.followed = True

    def finish(self):
        return ""


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    monkeypatch.setattr(suite, "ProcessPool", OneProcess)
    monkeypatch.setattr(suite, "Mirror", NoMirror)
    monkeypatch.setattr(report, "draw_all", lambda *_: ())  # a second a time, tested elsewhere


def run_suite(**request):
    watched = Watched()
    outcome = ablate(Request(Path("spec.yaml"), device="cpu", **request), watched)
    return outcome, watched


OUT = Path("results/trial")
NEVER_FITS = 2**42  # weights beyond any address space: out of memory on every machine


def test_every_row_is_run_once_and_the_table_is_written():
    write_spec(grid={"train.recurrence": [True, False]}, seeds=[1, 2])
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.DONE
    assert [state for _, state in watched.outcomes] == ["finished"] * 4
    assert watched.corpora == ["mine"]
    assert (len(watched.started), watched.finished_before) == (4, 0)
    assert "recurrence=true" in outcome.table
    assert {path.name for path in OUT.iterdir()} >= {"spec.yaml", "table.csv", "table.md", "runs"}
    places = dict(outcome.places)
    assert Path(places["table"]).is_file()
    assert Path(places["runs"]).is_dir()
    assert "results/mlflow.db" in places["MLflow"]


def test_a_finished_experiment_is_not_run_again():
    write_spec(seeds=[1, 2])
    run_suite()
    before = snapshot(OUT / "runs")
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.DONE
    assert watched.started == watched.outcomes == []
    assert watched.finished_before == 2
    assert snapshot(OUT / "runs") == before


def test_what_is_missing_is_run_and_what_is_there_is_not():
    write_spec()
    run_suite()
    before = snapshot(OUT / "runs")
    write_spec(seeds=[1, 2])
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.DONE
    assert len(watched.started) == watched.finished_before == 1
    assert snapshot(OUT / "runs").items() > before.items()


def test_a_missing_evaluation_is_made_without_training():
    write_spec()
    run_suite()
    before = snapshot(OUT / "runs")
    write_spec({"evaluate.attention_lengths": [4, 8, 12]})
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.DONE
    assert watched.outcomes == [("trial", "finished")]
    after = snapshot(OUT / "runs")
    trained = [name for name in before if name.endswith((".pt", "metrics.jsonl"))]
    assert len(trained) == 3
    assert all(after[name] == before[name] for name in trained)


def test_equal_configurations_of_two_labels_share_one_run():
    write_spec(
        rows=[
            {"label": "no memory", "set": {"train.mem_len": 0}},
            {"label": "no recurrence", "set": {"train.recurrence": False}},
        ]
    )
    outcome, watched = run_suite()
    assert watched.outcomes == [("no memory", "finished")]
    assert len(list((OUT / "runs").iterdir())) == 1
    assert "no memory" in outcome.table
    assert "no recurrence" in outcome.table


def test_an_edited_text_sets_the_old_run_aside(folder):
    write_spec()
    run_suite()
    (old,) = (OUT / "runs").iterdir()
    for number in (1, 2):
        before = snapshot(old)
        write_text(folder / "mine.txt", seed=number + 1)
        outcome, watched = run_suite()
        assert outcome.status is ExitStatus.DONE
        aside = old.with_name(f"{old.name}.stale-{number}")
        assert snapshot(aside) == before
        (warning,) = watched.warnings
        assert "mine has changed since trial (seed 1) was trained" in warning
        assert aside.name in warning
        assert watched.outcomes == [("trial", "finished")]
    assert len(list((OUT / "runs").iterdir())) == 3


def test_a_text_that_was_touched_but_not_changed_keeps_its_runs(folder):
    write_spec()
    run_suite()
    text = folder / "mine.txt"
    text.write_bytes(text.read_bytes())
    _, watched = run_suite()
    assert watched.started == watched.warnings == []


def failing(*labels, **settings):
    """Rows that run out of memory, between others that do not."""
    return [
        {"label": label, "set": {"model.d_inner": NEVER_FITS if "bad" in label else 24, "train.lr": lr}}
        for label, lr in zip(labels, (0.01, 0.02, 0.03, 0.04), strict=False)
    ]


def test_one_row_that_fails_does_not_stop_the_others():
    write_spec(rows=failing("one", "bad", "three"))
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.RUN_FAILED
    assert [state for _, state in watched.outcomes] == ["finished", "failed", "finished"]
    assert "failed" in outcome.table
    (bad,) = plan_of(only="bad")
    error = bad.directory.read_status()["error"]
    assert error["type"] == "RuntimeError"
    assert "allocate" in error["message"] or "memory" in error["message"]
    assert "Traceback" in bad.directory.error_file.read_text()


def test_a_fault_common_to_all_burns_two_runs():
    write_spec(rows=failing("bad 1", "bad 2", "bad 3", "bad 4"))
    outcome, watched = run_suite(jobs=1)
    assert outcome.status is ExitStatus.RUN_FAILED
    assert watched.outcomes == [("bad 1", "failed"), ("bad 2", "failed")]
    (warning,) = watched.warnings
    assert warning.startswith("the first two runs failed alike (RuntimeError: ")
    assert "--keep-going" in warning
    assert [run.directory.state for run in plan_of()[2:]] == [RunState.QUEUED] * 2


def test_keep_going_overrides():
    write_spec(rows=failing("bad 1", "bad 2", "three"))
    outcome, watched = run_suite(jobs=1, keep_going=True)
    assert outcome.status is ExitStatus.RUN_FAILED
    assert [state for _, state in watched.outcomes] == ["failed", "failed", "finished"]
    assert watched.warnings == []


def test_two_failures_after_a_success_stop_nothing():
    write_spec(rows=failing("one", "bad 2", "bad 3", "four"))
    _, watched = run_suite(jobs=1)
    assert [state for _, state in watched.outcomes] == ["finished", "failed", "failed", "finished"]


def test_two_different_faults_stop_nothing(monkeypatch):
    """Same kind of error, but from another place."""
    write_spec(rows=[*failing("bad 1"), {"label": "2", "set": {"train.lr": 1e30}}, *failing("3")])
    _, watched = run_suite(jobs=1)
    assert [state for _, state in watched.outcomes] == ["failed", "diverged", "finished"]


def test_a_warning_of_a_common_fault_is_given_once():
    """Runs that were under way beside the first two end later."""
    write_spec(rows=failing("bad 1", "bad 2", "bad 3"))
    watched = Watched()
    common = suite._CommonFault(False, watched)
    for run, expected in zip(plan_of(), (True, False, False), strict=True):
        prepared_job(run)
        run.directory.set_state(RunState.FAILED, {"type": "E", "message": "m", "where": "f:1"})
        assert common.allows_more(run, RunState.FAILED) is expected
    assert len(watched.warnings) == 1


def test_failed_runs_are_tried_again_only_when_asked():
    write_spec(rows=failing("one", "bad"))
    run_suite()
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.RUN_FAILED
    assert watched.outcomes == []
    assert watched.finished_before == 1
    assert watched.warnings == [
        "bad (seed 1) failed before and is not tried again without --retry"
    ]
    _, watched = run_suite(retry=True)
    assert watched.outcomes == [("bad", "failed")]
    assert plan_of(only="bad")[0].directory.read_status()["attempts"] == 2


def test_a_partial_run_is_continued():
    write_spec()
    (run,) = plan_of()
    execute(prepared_job(run), stopping_after(7))
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.DONE
    assert watched.outcomes == [("trial", "finished")]
    assert run.directory.read_status()["attempts"] == 2


def test_a_run_of_another_process_is_left_to_it():
    write_spec()
    (run,) = plan_of()
    prepared_job(run)
    status = {"state": "running", "pid": os.getppid(), "host": socket.gethostname()}
    write_json(run.directory.path / "status.json", {**status, "started": time.time()})
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.RUN_FAILED
    assert watched.started == []
    assert watched.warnings == ["trial (seed 1) is being run by another process; left to it"]


def refused(match, **request):
    with pytest.raises(UserError, match=match) as caught:
        run_suite(**request)
    assert len(str(caught.value).splitlines()) == 1


def test_what_all_rows_share_is_checked_before_anything_is_written(folder):
    """Corpus, fit of each row, device: a fault there starts no run and leaves no directory."""
    write_spec({"corpus.path": "missing.txt"})
    refused(r"missing\.txt: no such file")
    write_spec(rows=[{"label": "a", "set": {}}, {"label": "b", "set": {"train.batch_size": 5000}}])
    refused(r"row 'b': train\.batch_size: 5000 streams cannot be cut from")
    write_spec({"model.cutoffs": [100, 300]})
    refused("reach beyond the vocabulary of 256")
    write_spec()
    with pytest.raises(UserError, match="--device gpu: unknown"):
        ablate(Request(Path("spec.yaml"), device="gpu"), Watched())
    assert not Path("results").exists()


def test_a_row_that_does_not_fit_sets_nothing_aside(folder):
    write_spec()
    execute_all(plan_of())
    before = snapshot(OUT)
    write_text(folder / "mine.txt", seed=2)
    write_spec(rows=[{"label": "a", "set": {}}, {"label": "b", "set": {"train.batch_size": 5000}}])
    refused("row 'b'")
    assert snapshot(OUT) == before


def test_an_output_folder_that_cannot_be_made_is_refused(folder):
    write_spec()
    refused(r"mine\.txt/here: .*; choose another --out", out=Path("mine.txt/here"))
    Path("runs").write_text("")
    refused(r"choose another --out", out=folder)


def test_settings_of_the_command_line_are_kept_in_the_spec():
    write_spec()
    run_suite(overrides=("train.max_step=5",))
    assert "max_step: 5" in (OUT / "spec.yaml").read_text()
    assert plan_of(overrides=("train.max_step=5",))[0].directory.state is RunState.FINISHED
