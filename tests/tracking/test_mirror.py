"""The MLflow mirror against a real sqlite store.

The loop of the mirror process, without MLflow.
"""

import csv
import math
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from tests.reporting.laboratory import SPEC, Laboratory
from txlbench.files import read_json
from txlbench.records.claim import claimed
from txlbench.records.experiment_directory import ExperimentDirectory
from txlbench.records.schema import RunState
from txlbench.reporting.report import report
from txlbench.tracking.backlog import backlog, nothing_to_deliver, what_is_left
from txlbench.tracking.deliver import deliver
from txlbench.tracking.store import store_of

PARENT = "mlflow.parentRunId"


def client_of(directory: ExperimentDirectory) -> MlflowClient:
    return MlflowClient(tracking_uri=store_of(directory.path).uri)


def listed(directory: ExperimentDirectory) -> tuple[Run, dict[str, Run]]:
    """The parent run, and its children by name."""
    client = client_of(directory)
    experiment = client.get_experiment_by_name(directory.read_spec().name)
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    (parent,) = [run for run in runs if PARENT not in run.data.tags]
    children = {run.info.run_name: run for run in runs if PARENT in run.data.tags}
    assert len(children) == len(runs) - 1
    assert {run.data.tags[PARENT] for run in children.values()} <= {parent.info.run_id}
    return parent, children


def steps(directory: ExperimentDirectory, run: Run, metric: str) -> list[int]:
    history = client_of(directory).get_metric_history(run.info.run_id, metric)
    return sorted(point.step for point in history)


def start_following(directory: ExperimentDirectory) -> subprocess.Popen[str]:
    module, pipe = "txlbench.tracking.deliver", subprocess.PIPE
    command = [sys.executable, "-m", module, str(directory.path), "--follow"]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.full
def test_eight_runs_and_no_database_yet(laboratory: Laboratory) -> None:
    """Eight writers, a mirror that follows, and another delivery that finds no database either."""
    directory = laboratory.experiment(name="eight", seeds=list(range(8)), rows=[{"label": "xl"}])
    other = laboratory.finished(name="other", seeds=[1])
    mirror = start_following(directory)
    with ThreadPoolExecutor(9) as pool:
        delivery = pool.submit(deliver, other.path)
        for line, config, run in laboratory.runs(directory):
            pool.submit(laboratory.finish, run, config, line)
    assert delivery.result() is None
    assert mirror.communicate(timeout=120) == ("", "")
    assert mirror.returncode == 0
    _, children = listed(directory)
    assert set(children) == {f"xl, seed {seed}" for seed in range(8)}
    for run in children.values():
        assert run.info.status == "FINISHED"
        assert steps(directory, run, "train_bpc") == list(range(2, 101, 2))
        assert steps(directory, run, "valid_bpc") == list(range(10, 101, 10))
    assert len(listed(other)[1]) == 3
    client = client_of(directory)
    assert {each.name for each in client.search_experiments()} == {"eight", "other", "Default"}
    assert client.search_runs(["0"]) == []


def test_what_a_run_leaves_in_mlflow(stocked: Laboratory) -> None:
    directory = stocked.finished(seeds=[1])
    directory.add_commands(["txlbench ablate small.yaml"])
    report(directory, "txlbench ablate small.yaml")
    assert deliver(directory.path) is None
    parent, children = listed(directory)
    assert set(children) == {"xl", "xl, no memory", "absolute"}
    run, client = children["xl"], client_of(directory)
    losses = {line["step"]: line["valid_loss"] for line in _lines_of(directory, run, "valid_loss")}
    history = client.get_metric_history(run.info.run_id, "valid_bpc")
    assert {point.step: point.value for point in history} == pytest.approx(
        {step: loss / math.log(2) for step, loss in losses.items()}
    )
    assert not {"targets", "train_loss", "valid_loss"} & run.data.metrics.keys()
    assert run.data.params["parameters"] == "123456"
    assert run.data.tags["mlflow.source.name"] == "txlbench ablate small.yaml"
    assert run.data.tags["mlflow.user"]
    (dataset,) = run.inputs.dataset_inputs
    assert (dataset.dataset.name, dataset.dataset.digest) == ("corpus", "abc123")
    assert run.data.params["model.encoding"] == "xl"
    assert run.data.params["train.recurrence"] == "true"
    assert run.data.tags["txlbench.run_dir"] == str(
        directory.run(run.data.tags["txlbench.run_id"]).path
    )
    assert run.data.metrics["attention_length"] == 64
    assert steps(directory, run, "test_bpc_at_attention_length") == [8, 16, 32, 64]
    files = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert files == {"config.yaml", "facts.json", "summary.json"}
    files = {file.path for file in client.list_artifacts(parent.info.run_id)}
    tables = {f"table.{suffix}" for suffix in ("csv", "json", "md", "tex")}
    assert files == {"spec.yaml", "report.html", "figures", *tables}
    assert len(client.list_artifacts(parent.info.run_id, "figures")) == 8
    kept = client.download_artifacts(parent.info.run_id, "figures/loss_by_row.png")
    assert Path(kept).read_bytes() == (directory.figures / "loss_by_row.png").read_bytes()
    assert parent.info.artifact_uri.startswith(f"file://{stocked.folder}/mlartifacts/small/")


def _lines_of(directory: ExperimentDirectory, run: Run, key: str) -> list[dict[str, Any]]:
    lines = directory.run(run.data.tags["txlbench.run_id"]).read_metrics()
    return [line.content for line in lines if key in line.content]


def test_experiment_and_parent_show_results_at_first_sight(stocked: Laboratory) -> None:
    directory = stocked.finished(seeds=[1])
    report(directory, "txlbench ablate small.yaml")
    assert deliver(directory.path) is None
    parent, children = listed(directory)
    with directory.table("csv").open() as file:
        table = {row["row"]: row for row in csv.DictReader(file)}
    best = {name: float(row["bpc_best"]) for name, row in table.items()}
    found = {name: parent.data.metrics[f"bpc_best/{name.replace(',', '_')}"] for name in best}
    assert found == pytest.approx(best)
    for name, run in children.items():
        assert run.data.metrics["test_bpc_best"] == pytest.approx(best[name])
    assert parent.data.params["model.encoding"] == "xl, absolute"
    assert parent.data.params["rows"] == "3"
    note = parent.data.tags["mlflow.note.content"]
    first = min(best, key=best.__getitem__)
    assert note.startswith(f"{first} has the lowest loss ({best[first]:.3f} bpc best), but with")
    assert f"bpc best: {first} {best[first]:.3f}, " in note
    assert "3 runs, nested below" in note
    assert f"| {first} |" in note
    experiment = client_of(directory).get_experiment(parent.info.experiment_id)
    assert experiment.tags["mlflow.note.content"] == note
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"


@pytest.mark.full
def test_a_row_that_comes_later_is_shown_too(stocked: Laboratory) -> None:
    """MLflow lets nobody change a parameter; the description says what holds."""
    directory = stocked.finished(seeds=[1], rows=[{"label": "xl"}])
    report(directory, "txlbench ablate small.yaml")
    assert deliver(directory.path) is None
    stocked.finished(seeds=[1])
    report(directory, "txlbench ablate small.yaml")
    assert deliver(directory.path) is None
    parent, _ = listed(directory)
    assert "3 runs, nested below" in parent.data.tags["mlflow.note.content"]
    assert "bpc_best/absolute" in parent.data.metrics


def test_system_metrics_come_when_asked_for(
    stocked: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = stocked.finished(seeds=[1], rows=[{"label": "xl"}])
    assert deliver(directory.path) is None
    run = listed(directory)[1]["xl"]
    assert not any(name.startswith("system/") for name in run.data.metrics)
    monkeypatch.setenv("MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING", "true")
    assert deliver(directory.path) is None
    assert deliver(directory.path) is None
    assert steps(directory, run, "system/tokens_per_second") == list(range(2, 101, 2))


def test_an_infinite_perplexity_is_left_out(stocked: Laboratory) -> None:
    """MLflow would show 1.8e308, and no scale has room for that."""
    from txlbench.tracking.client import MlflowStore, Point

    directory = stocked.experiment()
    store = MlflowStore(store_of(directory.path))
    run = store.create(store.experiment_id("small"), "run", "token", {}, 1.0)
    store.log_points(run, [Point("train_ppl", math.inf, 1, 1), Point("train_ppl", 5.0, 2, 2)])
    history = client_of(directory).get_metric_history(run, "train_ppl")
    assert [(point.step, point.value) for point in history] == [(2, 5.0)]


@pytest.mark.full
def test_a_folder_of_any_name_gets_its_own_store(tmp_path: Path) -> None:
    laboratory = Laboratory(tmp_path / "out" / "a?b=c")
    directory = laboratory.finished(seeds=[1], rows=[{"label": "xl"}])
    assert deliver(directory.path) is None
    (run,) = listed(directory)[1].values()
    client_of(directory).download_artifacts(run.info.run_id, "summary.json")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a?b=c"]
    assert (laboratory.folder / "mlflow.db").is_file()
    assert nothing_to_deliver(directory.path)


def test_only_what_is_new_is_delivered(stocked: Laboratory) -> None:
    directory = stocked.experiment(seeds=[1], rows=[{"label": "xl"}])
    ((line, config, run),) = stocked.runs(directory)
    run.path.mkdir(parents=True)
    with claimed(run.path):
        stocked.start(run, config, line)
        stocked.train(run, config, 20)
        with run.metrics_file.open("a") as file:
            file.write('{"step": 22, "train')  # a line that is being written
        assert deliver(directory.path) is None
        first = listed(directory)[1]["xl"]
        assert first.info.status == "RUNNING"
        assert steps(directory, first, "train_bpc") == list(range(2, 21, 2))
        assert nothing_to_deliver(directory.path)

    with run.metrics_file.open("a") as file:
        file.write('_loss": 2.5}\n')
    assert not nothing_to_deliver(directory.path)
    assert deliver(directory.path) is None
    assert deliver(directory.path) is None
    assert listed(directory)[1]["xl"].info.run_id == first.info.run_id
    assert steps(directory, first, "train_bpc") == list(range(2, 23, 2))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (RunState.FAILED, "FAILED"),
        (RunState.DIVERGED, "FAILED"),
        (RunState.INTERRUPTED, "KILLED"),
        (RunState.IMPORTED, "FINISHED"),
    ],
)
def test_states(stocked: Laboratory, state: RunState, expected: str) -> None:
    directory = stocked.experiment(seeds=[1], rows=[{"label": "xl"}])
    ((line, config, run),) = stocked.runs(directory)
    stocked.fail(run, config, line, state, "reason")
    assert deliver(directory.path) is None
    parent, children = listed(directory)
    assert (children["xl"].info.status, parent.info.status) == (expected, expected)


def test_a_run_that_goes_on_is_running_again(stocked: Laboratory) -> None:
    directory = stocked.experiment(seeds=[1], rows=[{"label": "xl"}])
    ((line, config, run),) = stocked.runs(directory)
    stocked.fail(run, config, line, RunState.INTERRUPTED, "ctrl-c")
    assert deliver(directory.path) is None
    lines = run.metrics_file.read_bytes().splitlines(keepends=True)
    run.metrics_file.write_bytes(b"".join(lines[:10]))  # back to the checkpoint
    with claimed(run.path):
        run.start()
        assert deliver(directory.path) is None
        assert listed(directory)[1]["xl"].info.status == "RUNNING"
    run.metrics_file.write_bytes(b"".join(lines))
    stocked.train(run, config, 60, first=41)
    run.set_state(RunState.FINISHED)
    assert deliver(directory.path) is None
    found = listed(directory)[1]["xl"]
    assert found.info.status == "FINISHED"
    assert steps(directory, found, "train_bpc") == list(range(2, 61, 2))


def test_evaluating_anew_keeps_the_run(stocked: Laboratory) -> None:
    directory = stocked.finished(seeds=[1], rows=[{"label": "xl"}])
    assert deliver(directory.path) is None
    directory = stocked.finished(
        seeds=[1], rows=[{"label": "xl"}], evaluate={**SPEC["evaluate"], "tokens": 777}
    )
    assert deliver(directory.path) is None
    (run,) = listed(directory)[1].values()
    assert run.data.tags["evaluate.tokens"] == "777"


def test_a_store_that_was_emptied_gets_everything_again(
    stocked: Laboratory, migrated: Path
) -> None:
    directory = stocked.finished(seeds=[1])
    assert deliver(directory.path) is None
    assert nothing_to_deliver(directory.path)
    shutil.copy(migrated, directory.path.parent / "mlflow.db")
    assert not nothing_to_deliver(directory.path)
    assert deliver(directory.path) is None
    assert steps(directory, listed(directory)[1]["xl"], "train_bpc") == list(range(2, 101, 2))


def test_a_creation_that_was_not_acknowledged_is_found_again(stocked: Laboratory) -> None:
    directory = stocked.finished(seeds=[1], rows=[{"label": "xl"}])
    assert deliver(directory.path) is None
    for folder in (directory.path, stocked.runs(directory)[0][2].path):
        notes = read_json(folder / "mlflow.json")
        (folder / "mlflow.json").write_text(
            f'{{"store": "{notes["store"]}", "token": "{notes["token"]}"}}'
        )
    assert deliver(directory.path) is None
    assert steps(directory, listed(directory)[1]["xl"], "train_bpc") == list(range(2, 101, 2))


def test_results_that_were_copied_elsewhere_are_delivered_anew_and_told(
    stocked: Laboratory, capsys: pytest.CaptureFixture[str]
) -> None:
    before = stocked.finished(seeds=[1], rows=[{"label": "xl"}])
    assert deliver(before.path) is None
    assert capsys.readouterr().out == ""
    copy = stocked.folder.with_name("copy")
    shutil.copytree(stocked.folder, copy)
    directory = ExperimentDirectory(copy / "small")
    assert not nothing_to_deliver(directory.path)
    assert deliver(directory.path) is None
    told = capsys.readouterr().out
    assert told.startswith(
        f"MLflow: the results were moved or copied here from file://{stocked.folder}"
    )
    assert told.count("\n") == 1
    _, children = listed(directory)
    assert children["xl"].info.artifact_uri.startswith(f"file://{copy}/")
    client = client_of(directory)
    client.download_artifacts(children["xl"].info.run_id, "summary.json")
    assert {each.name for each in client.search_experiments()} == {"small", "empty", "Default"}
    assert deliver(directory.path) is None
    assert capsys.readouterr().out == ""
    assert nothing_to_deliver(before.path)


def test_rebuilding_leaves_one_of_each(stocked: Laboratory) -> None:
    directory = stocked.finished(seeds=[1])
    assert deliver(directory.path) is None
    before = listed(directory)[0].info.run_id
    assert deliver(directory.path, rebuild=True) is None
    parent, children = listed(directory)
    assert parent.info.run_id != before
    assert len(children) == 3


def test_a_broken_run_does_not_hold_up_the_others(stocked: Laboratory) -> None:
    directory = stocked.finished(seeds=[1])
    broken = directory.runs()[0]  # the first that is delivered: the row "absolute"
    broken.metrics_file.write_text("nonsense\n")
    reason = deliver(directory.path)
    assert reason is not None
    assert "metrics.jsonl: byte 0" in reason
    _, children = listed(directory)
    for name in ("xl", "xl, no memory"):
        assert steps(directory, children[name], "train_bpc") == list(range(2, 101, 2))
    assert backlog(directory.path) == (1, 1)


def test_a_dead_server_costs_a_line_and_its_backlog_is_kept(
    stocked: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    directory = stocked.finished(seeds=[1])
    begin = time.monotonic()
    reason = deliver(directory.path)
    assert reason is not None
    assert time.monotonic() - begin < 15
    assert backlog(directory.path) == (3, 180)
    said = what_is_left(directory.path, reason)
    assert said.startswith(f"{directory.path}: MLflow lacks 180 lines of 3 runs (")
    assert f"`txlbench sync {directory.path}`" in said
    assert "\n" not in said
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert deliver(directory.path) is None
    assert steps(directory, listed(directory)[1]["xl"], "train_bpc") == list(range(2, 101, 2))


def test_runs_of_dead_processes_are_put_right(stocked: Laboratory) -> None:
    directory = stocked.experiment(seeds=[1], rows=[{"label": "xl"}])
    ((line, config, run),) = stocked.runs(directory)
    run.path.mkdir(parents=True)
    with claimed(run.path):
        stocked.start(run, config, line)
        assert deliver(directory.path) is None
        parent, children = listed(directory)
        assert (children["xl"].info.status, parent.info.status) == ("RUNNING", "RUNNING")
    assert not nothing_to_deliver(directory.path)
    assert deliver(directory.path) is None
    parent, children = listed(directory)
    assert (children["xl"].info.status, parent.info.status) == ("KILLED", "KILLED")


@pytest.mark.parametrize("name", ["status.json", "facts.json", "timings.jsonl", "config.yaml"])
def test_any_broken_file_holds_up_its_run_at_most(stocked: Laboratory, name: str) -> None:
    directory = stocked.finished(seeds=[1])
    broken = directory.runs()[0]
    (broken.path / name).write_text("nonsense\n")
    reason = deliver(directory.path)
    assert reason is None or name in reason
    assert {"xl", "xl, no memory"} <= set(listed(directory)[1])
    assert (name == "status.json") <= (not nothing_to_deliver(directory.path))


def test_a_store_that_was_deleted_is_made_again(stocked: Laboratory, migrated: Path) -> None:
    directory = stocked.finished(seeds=[1], rows=[{"label": "xl"}])
    assert deliver(directory.path) is None
    shutil.rmtree(stocked.folder / "mlartifacts")
    shutil.copy(migrated, stocked.folder / "mlflow.db")
    assert deliver(directory.path, rebuild=True) is None
    (run,) = listed(directory)[1].values()
    assert steps(directory, run, "train_bpc") == list(range(2, 101, 2))
    client_of(directory).download_artifacts(run.info.run_id, "summary.json")


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_folder_is_a_store_too(
    laboratory: Laboratory, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs go there, and not to what else the shell names."""
    folder = tmp_path / "my runs"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", form.format(folder))
    monkeypatch.setenv("MLFLOW_EXPERIMENT_ID", "777")
    directory = laboratory.finished(seeds=[1], rows=[{"label": "xl"}])
    assert deliver(directory.path) is None
    (run,) = listed(directory)[1].values()
    assert run.info.artifact_uri.startswith(folder.as_uri())
    assert steps(directory, run, "train_bpc") == list(range(2, 101, 2))
    assert {path.name for path in laboratory.folder.iterdir()} == {"small"}
    assert nothing_to_deliver(directory.path)


PROGRAM = """
import sys
from txlbench.tracking import deliver
deliver.POLL_SECONDS, deliver.LAST_WAITS = 0.02, (0.0, 0.01, 0.01)
attempts = []
def attempt():
    attempts.append(1)
    print(len(attempts), flush=True)
    return {answer}
print("done", deliver.follow(attempt), flush=True)
"""


def start(answer: bool) -> subprocess.Popen[str]:
    program = PROGRAM.format(answer=answer)
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True)


def test_it_goes_on_until_its_input_closes_then_once_more() -> None:
    process = start(answer=True)
    assert process.stdout is not None
    seen = [process.stdout.readline() for _ in range(3)]
    assert seen == ["1\n", "2\n", "3\n"]
    assert process.poll() is None
    rest, _ = process.communicate(timeout=30)
    assert rest.split("\n")[-2] == "done True"
    assert process.returncode == 0


@pytest.mark.full
def test_it_gives_up_after_the_last_tries() -> None:
    process = start(answer=False)
    out, _ = process.communicate(timeout=30)
    assert out.split("\n")[-2] == "done False"
    assert len(out.split("\n")) >= 3 + 2
