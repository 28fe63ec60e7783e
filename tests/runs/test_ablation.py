"""The ablation as a whole: what is run, what is left alone, and what is said of it.

Runs are executed in this process here; `test_process_pool` has real ones, and the tests of the
command line have all of it together.

An experiment file that was edited half-way: what begins anew, and why.
"""

import shutil
from pathlib import Path

import pytest

from tests.runs.in_process import run_suite
from tests.runs.trial import (
    Watched,
    execute_all,
    plan_of,
    prepared_job,
    snapshot,
    stopping_after,
    write_spec,
    write_text,
)
from txlbench.commands.model_ref import resolve
from txlbench.errors import ExitStatus, UserError
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.schema import RunState
from txlbench.reporting.publication import copy_records
from txlbench.runs.ablation import ablate
from txlbench.runs.plan import Request
from txlbench.runs.plan_record import describe_plan
from txlbench.runs.train_run import execute

pytestmark = pytest.mark.usefixtures("one_process")
OUT = Path("results/trial")


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
    assert len(trained) == 4
    assert all(after[name] == before[name] for name in trained)


def test_what_another_experiment_has_trained_is_copied_and_only_measured():
    write_spec()
    run_suite()
    (first,) = (OUT / "runs").iterdir()
    write_spec({"evaluate.attention_lengths": [4, 8, 12]}, name="other", seeds=[1, 2])
    described = {run.seed: run for run in describe_plan(plan_of()).runs}
    assert (described[1].need, described[1].copied_from) == ("evaluation", str(first))
    assert (described[2].need, described[2].copied_from) == ("training", "")
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.DONE
    assert watched.said == [f"other (seed 1) is copied from {first}, where it was trained"]
    copy = Path("results/other/runs") / first.name
    for name in ("metrics.jsonl", "checkpoints/best.pt"):
        assert (copy / name).read_bytes() == (first / name).read_bytes()
    write_spec(name="third")
    _, watched = run_suite()
    assert (watched.started, watched.finished_before) == ([], 1)


def test_records_without_weights_stay_as_they_are_and_are_nobody_s_model():
    write_spec()
    run_suite()
    copies, _ = copy_records([ExperimentDirectory(OUT)], [], Path("published"))
    shutil.rmtree(OUT)
    copies[0].path.rename(OUT)
    before = snapshot(OUT / "runs")
    outcome, watched = run_suite()
    assert (outcome.status, watched.started, watched.warnings) == (ExitStatus.DONE, [], [])
    write_spec({"evaluate.attention_lengths": [4, 8, 12]})
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.RUN_FAILED
    assert watched.started == []
    (warning,) = watched.warnings
    assert warning == "trial (seed 1): no weights are here to measure; --out DIR trains it anew"
    assert snapshot(OUT / "runs") == before
    with pytest.raises(UserError, match=r"published without weights; train the run anew with `abl"):
        resolve("trial/trial")
    write_spec(name="other")
    assert describe_plan(plan_of()).runs[0].copied_from == ""


@pytest.mark.full
def test_what_was_trained_on_other_bytes_or_stopped_halfway_is_not_copied(folder):
    write_spec(seeds=[1, 2])
    for run in plan_of():
        execute(prepared_job(run), stopping_after(2) if run.config.seed == 1 else lambda: False)
    write_spec(name="other", seeds=[1])
    assert describe_plan(plan_of()).runs[0].copied_from == ""
    write_text(folder / "mine.txt", seed=9)
    write_spec(name="other", seeds=[2])
    _, watched = run_suite()
    assert watched.said == []
    assert len(watched.started) == 1


@pytest.mark.full
def test_in_a_folder_of_its_own_a_run_is_trained_again():
    write_spec()
    run_suite()
    _, watched = run_suite(out=Path("again"))
    assert (watched.said, len(watched.started)) == ([], 1)


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


def results_in(run):
    """The files of a run but for leases, which tell who had it last."""
    return {name: file for name, file in snapshot(run).items() if not name.startswith(".claim")}


@pytest.mark.full
def test_an_edited_text_sets_the_old_run_aside(folder):
    write_spec()
    run_suite()
    (old,) = (OUT / "runs").iterdir()
    for number in (1, 2):
        before = results_in(old)
        write_text(folder / "mine.txt", seed=number + 1)
        outcome, watched = run_suite()
        assert outcome.status is ExitStatus.DONE
        aside = old.with_name(f"{old.name}.stale-{number}")
        assert results_in(aside) == before
        (warning,) = watched.warnings
        assert "mine has changed since trial (seed 1) was trained" in warning
        assert aside.name in warning
        assert watched.outcomes == [("trial", "finished")]
    assert len(list((OUT / "runs").iterdir())) == 3


@pytest.mark.full
def test_a_text_that_was_touched_but_not_changed_keeps_its_runs(folder):
    write_spec()
    run_suite()
    text = folder / "mine.txt"
    text.write_bytes(text.read_bytes())
    _, watched = run_suite()
    assert watched.started == watched.warnings == []


def test_a_partial_run_is_continued():
    write_spec()
    (run,) = plan_of()
    execute(prepared_job(run), stopping_after(7))
    outcome, watched = run_suite()
    assert outcome.status is ExitStatus.DONE
    assert watched.outcomes == [("trial", "finished")]
    assert run.directory.read_status().attempts == 2


@pytest.mark.parametrize("name", ["status.json", "metrics.jsonl", "summary.json", "facts.json"])
def test_a_run_with_a_bad_file_is_named_and_the_others_go_on(name):
    write_spec(seeds=[1])
    run_suite()
    write_spec(seeds=[1, 2])
    (bad, good) = plan_of()
    (bad.directory.path / name).write_text("nonsense\n")
    before = snapshot(bad.directory.path)
    outcome, watched = run_suite(retry=True)
    assert outcome.status is ExitStatus.RUN_FAILED
    assert watched.outcomes == [("trial", "finished")]
    assert good.directory.state is RunState.FINISHED
    (warning,) = watched.warnings
    assert warning.startswith(f"trial (seed 1) is left alone: {bad.directory.path / name}: ")
    assert "1 damaged" in outcome.table
    assert f"damaged: {bad.directory.path / name}" in outcome.table
    assert snapshot(bad.directory.path) == before


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
    write_spec({"evaluate.attention_lengths": [4, 5000]})
    refused("attention length 5,000: split valid has")
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


def test_an_edited_experiment_says_what_differs_and_keeps_what_was_there():
    write_spec()
    (old,) = plan_of()
    execute(prepared_job(old), stopping_after(7))
    write_spec({"train.lr": 0.02, "train.clip": 0.5, "evaluate.tokens": 40})
    _, watched = run_suite()
    assert watched.warnings == [
        "trial (seed 1) begins anew, as train.lr was 0.01 and is 0.02, "
        f"train.clip was 0.25 and is 0.5; {old.id} is kept"
    ]
    assert old.directory.metrics_file.exists()
    assert run_suite()[1].warnings == []


@pytest.mark.full
def test_of_several_the_nearest_is_told():
    for settings in ({"train.lr": 0.02, "train.clip": 0.5}, {"train.clip": 0.5}):
        write_spec(settings)
        run_suite()
    write_spec()
    (warning,) = run_suite()[1].warnings
    assert "anew, as train.clip was 0.5 and is 0.25;" in warning


@pytest.mark.full
def test_more_rows_and_seeds_are_no_change():
    write_spec(rows=[{"label": "one", "set": {}}])
    run_suite()
    rows = [{"label": "one", "set": {}}, {"label": "two", "set": {"train.lr": 0.3}}]
    write_spec(rows=rows, seeds=[1, 2])
    assert run_suite()[1].warnings == []
