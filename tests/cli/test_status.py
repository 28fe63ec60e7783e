"""`txlbench status`: every run in a line, and files that cannot be read named."""

import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.runs.trial import execute_all, prepared_job, write_spec, write_text
from txlbench.cli.results import _ago, status
from txlbench.errors import UserError
from txlbench.files import write_json
from txlbench.records.run_directory import claimed
from txlbench.records.schema import RunState
from txlbench.runs.plan import Request, open_experiment


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    """Three runs of an experiment on disk: finished, failed and interrupted long ago."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path / "data"))
    write_text(tmp_path / "mine.txt")
    write_spec(seeds=[1, 2, 3])
    experiment, directory, plan = open_experiment(Request(Path("spec.yaml")))
    directory.path.mkdir(parents=True)
    directory.write_spec(experiment)
    done, failed, interrupted = plan
    execute_all([done])
    prepared_job(failed)
    failed.directory.set_state(
        RunState.FAILED, {"type": "ValueError", "message": "too bad", "where": "x:1"}
    )
    prepared_job(interrupted)
    interrupted.directory.append_metrics({"step": 7, "train_loss": 1.0})
    interrupted.directory.set_state(RunState.INTERRUPTED)
    write_json(
        interrupted.directory.path / "status.json",
        {"state": "interrupted", "updated": time.time() - 7300},
    )
    return [run.directory for run in plan]


def shown(*arguments):
    code, lines = called(*arguments)
    assert code == 0
    return lines


def called(*arguments):
    """(exit status, lines printed)."""
    result = CliRunner().invoke(status, arguments, catch_exceptions=False, standalone_mode=False)
    return result.return_value, result.stdout.splitlines()


@pytest.mark.parametrize("arguments", [(), ("results",), ("results/trial",)])
def test_every_run_has_a_line_with_state_step_and_age(runs, arguments):
    first, *lines = shown(*arguments)
    assert first == str(Path("results/trial"))
    by_run = {line.split()[0]: line for line in lines}
    assert by_run.keys() == {run.id for run in runs}
    done, failed, interrupted = (by_run[run.id] for run in runs)
    assert "finished, step 12/12, " in done
    assert "seconds ago" in done
    assert "failed, step 0/12" in failed
    assert failed.endswith("ValueError: too bad")
    assert "interrupted, step 7/12, 2 hours ago" in interrupted


def test_a_run_whose_process_is_gone_is_interrupted(runs):
    with claimed(runs[0]):
        runs[0].start()
        assert any("running, step 12/12" in line for line in shown())
    assert any("interrupted, step 12/12" in line for line in shown())


def test_stale_runs_are_left_out(runs):
    runs[0].path.rename(runs[0].path.with_name(f"{runs[0].id}.stale-1"))
    assert len(shown()) == 3


@pytest.mark.parametrize(
    "name", ["status.json", "metrics.jsonl", "config.yaml", "facts.json", "summary.json"]
)
def test_a_run_with_a_damaged_file_is_named_and_the_others_are_shown(runs, name):
    (runs[0].path / name).write_text("{damaged\n")
    code, lines = called()
    assert code == 1
    assert len(lines) == 1 + 3
    (bad,) = [line for line in lines if runs[0].id in line]
    assert bad.startswith(f"  {runs[0].id}  damaged  {runs[0].path / name}")
    assert any("failed, step 0/12" in line for line in lines)


def test_a_damaged_experiment_file_leaves_the_others(runs):
    other = runs[0].path.parents[2] / "other"
    other.mkdir()
    (other / "spec.yaml").write_text("name: [")
    code, lines = called()
    assert code == 1
    assert lines[0] == str(Path("results/other"))
    assert lines[1].startswith("  results/other/spec.yaml:1: not YAML")
    assert len(lines) == 2 + 1 + 3


def test_a_folder_without_experiments_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty: no experiment"):
        shown("empty")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 seconds ago"),
        (119, "119 seconds ago"),
        (120, "2 minutes ago"),
        (7199, "119 minutes ago"),
        (7200, "2 hours ago"),
        (3 * 86400, "3 days ago"),
    ],
)
def test_ages(seconds, words):
    assert _ago(seconds) == words
