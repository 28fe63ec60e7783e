"""`txlbench status` and `prune`: every run in a line, damage named, what no result needs."""

import shutil
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.records.as_record import append_line
from tests.runs.trial import execute_all, prepared_job, write_spec, write_text
from txlbench.cli.results import prune, status
from txlbench.config.grid import load_experiment
from txlbench.errors import UserError
from txlbench.files import write_json
from txlbench.records.claim import claimed
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.schema import Failure, RunState
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
        RunState.FAILED, Failure(type="ValueError", message="too bad", where="x:1")
    )
    prepared_job(interrupted)
    append_line(interrupted.directory.metrics_file, step=7, train_loss=1.0)
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


def pruned(*arguments):
    code, lines = called(*arguments, command=prune)
    assert code is None
    return lines


def called(*arguments, command=status):
    """(exit status, lines printed)."""
    result = CliRunner().invoke(command, arguments, catch_exceptions=False, standalone_mode=False)
    return result.return_value, result.stdout.splitlines()


@pytest.mark.parametrize("arguments", [(), ("results",), ("results/trial",), ("trial",)])
def test_every_run_has_a_line_with_label_state_step_loss_and_age(runs, arguments):
    first, *lines = shown(*arguments)
    assert first == str(Path("results/trial"))
    assert [line.rpartition("[")[2].rstrip("]") for line in lines] == [run.id for run in runs]
    done, failed, interrupted = lines
    assert done.startswith("  trial (seed 1): finished, step 12/12, valid ")
    assert " bpc, " in done
    assert "seconds ago  [" in done
    assert failed.startswith("  trial (seed 2): failed, step 0/12")
    assert "; ValueError: too bad  [" in failed
    assert interrupted.startswith(
        "  trial (seed 3): interrupted, step 7/12, train 1.443 bpc, 2 hours ago"
    )


def test_a_run_whose_process_is_gone_is_interrupted(runs):
    with claimed(runs[0].path):
        runs[0].start()
        assert any("running, step 12/12" in line for line in shown())
    assert any("interrupted, step 12/12" in line for line in shown())


def test_a_running_one_tells_the_time_left(runs):
    with claimed(runs[2].path):
        runs[2].start()
        append_line(runs[2].timings_file, step=7, tokens_per_second=1.6)
        assert any("step 7/12, train 1.443 bpc, 1:40 left" in line for line in shown())


def test_a_row_that_has_not_started_is_shown(runs):
    shutil.rmtree(runs[1].path)
    assert f"  trial (seed 2): not started  [{runs[1].id}]" in shown()


def test_runs_of_other_settings_tell_what_differs(runs):
    experiment = load_experiment(Path("spec.yaml"), ["train.lr=0.02", "seeds=[1]"])
    ExperimentDirectory(runs[0].path.parents[1]).write_spec(experiment)
    _, fresh, note, first, *_ = shown()
    assert fresh.startswith("  trial (seed 1): not started")
    assert note == "  3 runs of other settings are kept; `txlbench prune` deletes them"
    assert first.endswith(f"; train.lr was 0.01 and is 0.02  [{runs[0].id}]")


def test_prune_lists_what_no_result_needs_and_deletes_it_when_told_to(runs):
    directory = ExperimentDirectory(runs[0].path.parents[1])
    directory.write_spec(load_experiment(Path("spec.yaml"), ["seeds=[1]"]))
    stale = runs[0].path.with_name(f"{runs[0].id}.stale-1")
    shutil.copytree(runs[2].path, stale)
    previous = runs[0].checkpoints / "previous.pt"
    spare = [previous, runs[1].path, runs[2].path, stale]
    assert all(path.exists() for path in spare)
    listed = pruned()
    assert {Path(line.partition(":")[0]) for line in listed[:-1]} == {*spare}
    assert listed[-1].endswith("can be deleted with --yes")
    assert all(path.exists() for path in spare)
    assert pruned("results/trial", "--yes")[-1].endswith(" deleted")
    assert not any(path.exists() for path in spare)
    assert pruned() == ["nothing to delete"]
    assert any("finished" in line for line in shown())
    assert (runs[0].checkpoints / "last.pt").exists()


def test_prune_leaves_a_run_that_is_worked_on(runs):
    directory = ExperimentDirectory(runs[0].path.parents[1])
    directory.write_spec(load_experiment(Path("spec.yaml"), ["seeds=[1]"]))
    with claimed(runs[2].path):
        pruned("--yes")
    assert runs[2].path.exists()
    assert not runs[1].path.exists()


def test_stale_runs_are_left_out(runs):
    runs[0].path.rename(runs[0].path.with_name(f"{runs[0].id}.stale-1"))
    assert "not started" in shown()[1]
    assert len(shown()) == 4


@pytest.mark.parametrize(
    "name", ["status.json", "metrics.jsonl", "config.yaml", "facts.json", "summary.json"]
)
def test_a_run_with_a_damaged_file_is_named_and_the_others_are_shown(runs, name):
    (runs[0].path / name).write_text("{damaged\n")
    code, lines = called()
    assert code == 1
    assert len(lines) == 1 + 3
    (bad,) = [line for line in lines if runs[0].id in line]
    assert bad.startswith(f"  trial (seed 1): damaged  {runs[0].path / name}")
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
