"""The plan: what each run needs, and the JSON that --dry-run promises."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.runs.trial import execute_all, plan_of, prepared_job, snapshot, write_spec
from txlbench.config.counting import parameters, train_flops
from txlbench.files import write_json
from txlbench.records.schema import Failure, RunState
from txlbench.runs.plan import Need
from txlbench.runs.plan_record import describe_plan
from txlbench.runs.plan_schema import SCHEMA
from txlbench.runs.train_run import execute

PROMISED = {
    "id": str,
    "label": str,
    "seed": int,
    "state": str,
    "parameters": int,
    "train_tokens": int,
    "train_flops": int,
    "estimated_seconds": float,
    "estimated_bytes": int,
}
ADDED = {"labels": list, "need": str, "stale": str, "copied_from": str, "unknown": dict}
ESTIMATES = {"evaluation_flops": int, "memory_bytes": dict, "accelerators": list, "probe": dict}


def described(**request):
    """What JSON readers get."""
    return json.loads(describe_plan(plan_of(**request)).model_dump_json(by_alias=True))


def check_schema(content):
    assert content.keys() == {"schema", "runs", "total", "tuning"}
    assert content["schema"] == SCHEMA == "txlbench.plan/2"
    for run in content["runs"]:
        assert run.keys() == PROMISED.keys() | ADDED.keys() | ESTIMATES.keys()
        for name, kind in {**PROMISED, **ADDED, **ESTIMATES}.items():
            assert run[name] is None or type(run[name]) is kind, (name, run[name])
        unknown = {name for name, value in run.items() if value is None}
        assert run["unknown"].keys() == unknown
        assert all(isinstance(reason, str) and reason for reason in run["unknown"].values())


def test_the_plan_of_a_fresh_experiment_follows_its_schema():
    write_spec(grid={"train.recurrence": [True, False]}, seeds=[1, 2])
    content = described()
    check_schema(content)
    assert [(run["label"], run["seed"]) for run in content["runs"]] == [
        ("recurrence=true", 1),
        ("recurrence=true", 2),
        ("recurrence=false", 1),
        ("recurrence=false", 2),
    ]
    assert {run["state"] for run in content["runs"]} == {"queued"}
    assert {run["need"] for run in content["runs"]} == {"training"}
    assert {frozenset(run["unknown"]) for run in content["runs"]} == {
        frozenset({"estimated_seconds", "evaluation_flops", "probe"})
    }


def test_sizes_are_those_of_the_formulas():
    write_spec()
    (run,), (planned,) = described()["runs"], plan_of()
    assert run["parameters"] == parameters(planned.config.model, 256)
    assert run["train_flops"] == train_flops(planned.config, 256)
    assert run["train_tokens"] == 12 * 4 * 8


def test_the_estimate_of_parameters_is_what_the_run_had():
    write_spec()
    execute_all(plan_of())
    facts = plan_of()[0].directory.read_facts()
    assert described()["runs"][0]["parameters"] == facts.parameters


@pytest.mark.parametrize(
    "settings",
    [{"train.mem_len": 0}, {"train.mem_len": 60, "train.average_from": 0.1}],
    ids=["weights", "with memory and average"],
)
def test_estimated_bytes_are_those_of_the_checkpoints(settings):
    """Headers come on top: small beside the weights of any real model."""
    write_spec({"model.d_model": 128, "train.max_step": 3, "train.eval_interval": 1, **settings})
    (planned,) = plan_of()
    execute_all([planned])
    size = sum(path.stat().st_size for path in planned.directory.checkpoints.iterdir())
    assert described()["runs"][0]["estimated_bytes"] == pytest.approx(size, rel=0.05)


def test_an_unknown_vocabulary_is_null_with_its_reason_until_an_attempt_noted_it():
    write_spec({"corpus.level": "char"})
    (run,) = described()["runs"]
    check_schema(described())
    for name in ("parameters", "train_flops", "estimated_seconds", "estimated_bytes"):
        assert run[name] is None
        assert "vocabulary" in run["unknown"][name]
    execute_all(plan_of())
    (run,) = described()["runs"]
    check_schema(described())
    assert run["parameters"] == plan_of()[0].directory.read_facts().parameters


def test_trained_runs_give_an_estimate_for_the_others():
    write_spec(grid={"train.max_step": [12, 24]})
    short, _ = plan_of()
    execute_all([short])
    content = described()
    check_schema(content)
    first, second = content["runs"]
    seconds = short.directory.read_summary().training.seconds
    assert (first["state"], first["need"]) == ("finished", "nothing")
    assert first["estimated_seconds"] == pytest.approx(seconds)
    assert second["estimated_seconds"] == pytest.approx(2 * seconds)
    assert "estimated_seconds" not in second["unknown"]


def test_labels_with_equal_configurations_share_a_run():
    write_spec(
        rows=[
            {"label": "no memory", "set": {"train.mem_len": 0}},
            {"label": "no recurrence", "set": {"train.recurrence": False}},
            {"label": "both", "set": {"train.mem_len": 8}},
        ]
    )
    content = described()
    check_schema(content)
    assert [run["labels"] for run in content["runs"]] == [
        ["no memory", "no recurrence"],
        ["both"],
    ]
    assert plan_of()[0].title == "no memory (seed 1)"


@pytest.mark.parametrize(
    ("state", "need"),
    [
        ("interrupted", "training"),
        ("failed", "retry"),
        ("diverged", "retry"),
        ("running", "training"),
    ],
)
def test_what_a_run_needs_follows_from_its_state(state, need):
    write_spec()
    (run,) = plan_of()
    prepared_job(run)
    # A process that is gone: running is interrupted then.
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    run.directory.start()
    status = {**run.directory.read_status().content, "state": state, "pid": gone.pid}
    write_json(run.directory.path / "status.json", status)
    assert run.need() is Need(need)
    (entry,) = described()["runs"]
    assert entry["state"] == ("interrupted" if state == "running" else state)


def test_a_finished_run_needs_an_evaluation_that_is_asked_for_or_gone():
    write_spec()
    (run,) = plan_of()
    execute_all([run])
    assert run.need() is Need.NOTHING
    write_spec({"evaluate.attention_lengths": [4, 12]})
    assert plan_of()[0].need() is Need.EVALUATION
    write_spec({"evaluate.split": "valid"})
    assert plan_of()[0].need() is Need.EVALUATION
    write_spec({"evaluate.attention_lengths": [4]})  # all is measured, but not summed up like this
    assert plan_of()[0].need() is Need.EVALUATION
    write_spec()
    next(run.directory.evaluations.iterdir()).unlink()
    assert plan_of()[0].need() is Need.EVALUATION
    execute_all(plan_of())
    assert plan_of()[0].need() is Need.NOTHING


def test_a_trained_run_needs_its_evaluations_only():
    write_spec()
    (run,) = plan_of()
    calls = iter(range(1000))
    execute(prepared_job(run), lambda: next(calls) >= 12)  # stops before the first measurement
    assert run.directory.state is RunState.INTERRUPTED
    assert run.need() is Need.EVALUATION


def test_only_takes_labels_and_run_ids():
    write_spec(grid={"model.encoding": ["xl", "shaw"]})
    xl, shaw = plan_of()
    assert [run.id for run in plan_of(only=("*shaw",))] == [shaw.id]
    assert [run.id for run in plan_of(only=(xl.id,))] == [xl.id]
    assert plan_of()[0].directory.path == Path("results/trial/runs") / xl.id
    assert plan_of(out=Path("elsewhere"))[0].directory.path == Path("elsewhere/runs") / xl.id


FORBIDDEN = ("torch", "mlflow", "pandas", "matplotlib")
CALL = (
    "import sys\nfrom txlbench.cli.main import main\nsys.argv = ['txlbench', *{arguments!r}]\n"
    "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
    "print('LOADED', sorted(set({forbidden!r}) & set(sys.modules)))\n"
)


@pytest.mark.parametrize("format_", ["text", "json"])
def test_a_dry_run_writes_nothing_and_loads_nothing_heavy(folder, format_):
    write_spec(grid={"model.encoding": ["xl", "absolute"]})
    before = snapshot(folder)
    arguments = ["ablate", "spec.yaml", "--dry-run", "--format", format_]
    code = CALL.format(arguments=arguments, forbidden=FORBIDDEN)
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(root), "PATH": "", "TXLBENCH_DATA": str(folder / "data")},
    )
    output, _, loaded = done.stdout.rpartition("LOADED ")
    assert loaded.strip() == "[]"
    assert snapshot(folder) == before
    assert not (folder / "data").exists()
    if format_ == "json":
        check_schema(json.loads(output))
    else:
        rows = [line.split()[0] for line in output.splitlines() if line.startswith("encoding=")]
        assert rows == ["encoding=xl", "encoding=absolute"]
        assert "needs training" in output


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "experiments").glob("*.yaml")))
def test_every_shipped_experiment_has_a_plan(path):
    from txlbench.runs.plan import Request, open_experiment

    _, _, plan = open_experiment(Request(path))
    check_schema(json.loads(describe_plan(plan).model_dump_json(by_alias=True)))
    content = yaml.safe_load(path.read_text())
    assert plan
    assert {run.config.seed for run in plan} == set(content.get("seeds", [1]))


def test_a_run_that_was_killed_goes_on_and_one_that_failed_waits():
    write_spec()
    (run,) = plan_of()
    run.directory.path.mkdir(parents=True)
    killed = Failure(type="SIGKILL", message="ended by signal 9", where="process")
    run.directory.set_state(RunState.FAILED, killed)
    assert run.need() is Need.TRAINING
    run.directory.set_state(RunState.FAILED, killed.model_copy(update={"type": "RuntimeError"}))
    assert run.need() is Need.RETRY
