"""Tuning: what is tried, what a call that was stopped leaves, and what becomes of the winner."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runs.in_process import OneProcess, run_suite
from tests.runs.trial import write_spec
from txlbench.errors import ExitStatus, UserError
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.reporting.experiment_results import read_results
from txlbench.runs import tuning
from txlbench.runs.executors import choose
from txlbench.runs.plan import Request, open_experiment
from txlbench.runs.plan_record import describe_plan
from txlbench.runs.status import spares, status_lines
from txlbench.runs.tuning import open_studies

OUT = Path("results/trial")
TUNE = {"train.lr": [1e-4, 1e-1], "model.dropout": {"choices": [0.0, 0.2]}}
GRID = {"train.recurrence": [True, False]}


def trials(out=OUT):
    """Settings and value of every trial in the journal, by study and number."""
    experiment = open_experiment(Request(Path("spec.yaml")))[0]
    return [
        [
            (trial.number, trial.state.name, trial.params, trial.value)
            for trial in each.study.get_trials()
        ]
        for each in open_studies(experiment, ExperimentDirectory(out))
    ]


def trained(out=OUT):
    return {path.name for path in (out / "runs").iterdir()}


def test_each_row_runs_with_the_best_of_its_trials_and_is_reproduced_from_its_file(one_process):
    write_spec(grid=GRID, seeds=[1, 2], tune=TUNE)
    outcome, _ = run_suite(tune_trials=4)
    _check_winners(outcome)
    _check_table()
    _check_reproduced()


def _check_winners(outcome):
    assert outcome.status is ExitStatus.DONE
    for line, found in zip(ExperimentDirectory(OUT).read_spec().lines, trials(), strict=True):
        assert [state for _, state, _, _ in found] == ["COMPLETE"] * 4
        assert found[0][2] == {"train.lr": 0.01, "model.dropout": 0.2}  # the row's own
        *_, params, value = min(found, key=lambda trial: trial[-1])
        config = line.configs[0]
        assert config.train.lr == pytest.approx(params["train.lr"], rel=1e-3)
        assert config.model.dropout == params["model.dropout"]
        assert line.tuned.valid_loss == value
        assert (line.tuned.trials, line.tuned.seed) == (4, 1)
    for run in read_results(ExperimentDirectory(OUT)).runs:
        assert run.state == "finished"
        if run.config.seed == 1:
            assert run.training.best_valid_loss == run.line.tuned.valid_loss


def _check_table():
    table = (OUT / "table.md").read_text()
    said = "seed 1, 4 trials: train.lr, 0.0001 to 0.1 (log); model.dropout, one of 0.0, 0.2."
    assert said in table
    assert "| train.lr | model.dropout | trials |" in table
    assert "tuning_trials" in (OUT / "table.csv").read_text().split("\n")[0]


def _check_reproduced():
    """The file that tuning wrote, elsewhere and without Optuna, comes to the same losses."""
    Path("spec.yaml").write_text((OUT / "spec.yaml").read_text())
    assert "tune:" not in Path("spec.yaml").read_text()
    run_suite(out=Path("again/trial"))
    first, again = (
        {
            run.directory.id: (run.training.best_valid_loss, run.outcome.best.loss)
            for run in read_results(ExperimentDirectory(out)).runs
        }
        for out in (OUT, Path("again/trial"))
    )
    assert len(first) == 4
    assert again == first


def test_nothing_is_trained_twice(one_process):
    write_spec(seeds=[1, 2], tune=TUNE)
    run_suite(tune_trials=2)
    runs = trained()
    assert len(runs) == 2 + 1  # the winner is the trial of seed 1
    _, watched = run_suite(tune_trials=2)
    assert (watched.outcomes, trained()) == ([], runs)
    _, watched = run_suite(tune_trials=3)
    assert len([state for label, state in watched.outcomes if "train.lr" in label]) == 1


class Stopped(OneProcess):
    """A call that ends like one that was killed, before the result of some job is noted."""

    left = 0

    def run(self, jobs, ended, tick):
        def counted(job, state):
            Stopped.left -= 1
            if Stopped.left < 0:
                raise KeyboardInterrupt
            return ended(job, state)

        super().run(jobs, counted, tick)


@pytest.mark.parametrize(
    "after", [1, *(pytest.param(after, marks=pytest.mark.full) for after in (0, 2))]
)
def test_a_stopped_call_goes_on_with_the_same_trials(one_process, monkeypatch, after):
    """As if it had not been stopped: what is proposed depends on the journal alone."""
    write_spec(tune=TUNE)
    run_suite(tune_trials=3, out=Path("straight/trial"))
    Stopped.left = after
    with monkeypatch.context() as patch:
        patch.setattr(choose, "ProcessPool", Stopped)
        with pytest.raises(KeyboardInterrupt):
            run_suite(tune_trials=3)
    (OUT / "tuning.jsonl").open("ab").write(b'{"op_code": 5, "wor')  # torn by the kill
    outcome, _ = run_suite(tune_trials=3)
    assert outcome.status is ExitStatus.DONE
    assert trials() == trials(Path("straight/trial"))
    assert trained() == trained(Path("straight/trial"))


def test_trials_that_diverge_or_cannot_be_are_told_so(one_process):
    tune = {"train.lr": {"choices": [0.01, 1e30]}, "model.n_head": {"choices": [2, 16]}}
    write_spec({"model.d_model": 16}, tune=tune)
    outcome, _ = run_suite(tune_trials=6, keep_going=True)
    (found,) = trials()
    by_rate = {params["train.lr"]: value for _, _, params, value in found}
    assert by_rate[0.01] < 6
    assert by_rate.get(1e30) in (None, tuning.DIVERGED_LOSS)
    assert outcome.status is ExitStatus.DONE
    (line,) = ExperimentDirectory(OUT).read_spec().lines
    assert line.configs[0].train.lr == 0.01


def test_a_row_without_any_result_is_trained_as_it_stands(one_process):
    write_spec(tune={"train.lr": {"choices": [1e29, 1e30]}})
    outcome, watched = run_suite(tune_trials=2, keep_going=True)
    assert outcome.status is ExitStatus.DONE
    assert any("no trial came to a loss on valid" in line for line in watched.warnings)
    (line,) = ExperimentDirectory(OUT).read_spec().lines
    assert (line.configs[0].train.lr, line.tuned) == (0.01, None)


def test_only_some_rows_are_tuned(one_process):
    write_spec(grid=GRID, tune=TUNE)
    run_suite(tune_trials=2, only=("recurrence=true",))
    tuned, other = ExperimentDirectory(OUT).read_spec().lines
    assert (tuned.tuned.trials, other.tuned) == (2, None)


def test_trials_that_lost_are_named_as_such(one_process):
    write_spec(grid=GRID, tune=TUNE | {"train.max_step": [10, 12]})
    run_suite(tune_trials=3)
    lines = [line for line, _ in status_lines(ExperimentDirectory(OUT))]
    assert "4 trials of tuning that did not win" in lines
    assert not any("other settings" in line for line in lines)
    assert sum(", train.lr " in line for line in lines) == 4
    found = list(spares(ExperimentDirectory(OUT)))
    reasons = [each.reason for each in found if each.path.is_dir()]
    assert sorted(set(reasons)) == [
        f"a trial of tuning 'recurrence={value}' that did not win" for value in ("false", "true")
    ]
    assert len(reasons) == 4
    for each in found:
        each.delete()
    _, watched = run_suite(tune_trials=3)
    assert watched.outcomes == []


def test_a_trial_that_has_not_ended_is_not_spare(one_process, monkeypatch):
    write_spec(tune=TUNE)
    Stopped.left = 1
    monkeypatch.setattr(choose, "ProcessPool", Stopped)
    with pytest.raises(KeyboardInterrupt):
        run_suite(tune_trials=3)
    for run in ExperimentDirectory(OUT).runs():
        (run.path / "status.json").write_text('{"state": "running"}')
    assert list(spares(ExperimentDirectory(OUT))) == []


def test_tune_without_trials_is_said(one_process):
    write_spec(tune=TUNE)
    _, watched = run_suite()
    assert any("--tune-trials" in line for line in watched.warnings)


def test_what_cannot_be_tuned_is_refused(one_process, monkeypatch):
    write_spec()
    with pytest.raises(UserError, match="has nothing to tune"):
        run_suite(tune_trials=2)
    write_spec(tune=TUNE)
    monkeypatch.setattr(tuning, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="Optuna is not installed") as error:
        run_suite(tune_trials=2)
    assert error.value.remedy == "pip install 'txlbench[tune]'"


def test_a_damaged_journal_is_named(one_process):
    write_spec(tune=TUNE)
    OUT.mkdir(parents=True)
    (OUT / "tuning.jsonl").write_text("no journal\n" * 3)
    with pytest.raises(UserError, match=r"tuning.jsonl: not a journal of Optuna"):
        run_suite(tune_trials=2)


@pytest.mark.parametrize(
    "line", ["garbage", '{"op_code": 99}', "[]", "{}", '{"op_code": 4, "worker_id": "a"}', "1"]
)
@pytest.mark.parametrize("is_last", [True, False])
def test_a_damaged_line_of_a_journal_is_told(one_process, line, is_last):
    write_spec(tune=TUNE)
    OUT.mkdir(parents=True)
    experiment = open_experiment(Request(Path("spec.yaml")))[0]
    open_studies(experiment, ExperimentDirectory(OUT))
    journal = OUT / "tuning.jsonl"
    lines = journal.read_text().splitlines()
    lines[len(lines) if is_last else 0 :] = [line, *lines[len(lines) if is_last else 0 :]]
    journal.write_text("\n".join(lines) + "\n")
    with pytest.raises(UserError, match=r"tuning.jsonl: not a journal of Optuna .*; delete it"):
        open_studies(experiment, ExperimentDirectory(OUT))


def test_a_dry_run_says_what_tuning_costs():
    write_spec(grid=GRID, seeds=[1, 2], tune=TUNE)
    described = describe_plan(open_experiment(Request(Path("spec.yaml")))[2])
    tuning_cost = described.with_tuning(5).tuning
    assert (tuning_cost.trials, tuning_cost.runs) == (5, 10)
    assert tuning_cost.train_tokens == 5 * described.total.train_tokens // 2
    assert tuning_cost.train_flops == 5 * described.total.train_flops // 2


@pytest.mark.full
@pytest.mark.alone
def test_killed_again_and_again_it_ends_as_if_it_had_not_been():
    write_spec({"train.max_step": 60, "train.checkpoint_interval": 5}, grid=GRID, tune=TUNE)
    words = ["ablate", "spec.yaml", "--tune-trials", "3", "--jobs", "1"]
    assert call([*words, "--out", "straight/trial"]).wait() == 0
    kills = 0
    while kills < 4:
        process = call(words)
        try:
            process.wait(timeout=12 + 4 * kills)
            break
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            time.sleep(1)
    assert call(words).wait() == 0
    assert kills > 0
    assert trials() == trials(Path("straight/trial"))
    ours, straight = (
        {run.directory.id: run.training.best_valid_loss for run in read_results(found).runs}
        for found in map(ExperimentDirectory, (OUT, Path("straight/trial")))
    )
    assert ours == straight


def call(words):
    return subprocess.Popen(
        [sys.executable, "-m", "txlbench", *words], env={**os.environ}, start_new_session=True
    )
