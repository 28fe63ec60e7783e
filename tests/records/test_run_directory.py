"""A run's directory gives back what was put into it, and says so where it cannot."""

import json
import os
from pathlib import Path

import pytest

from tests.records.as_record import append_line, as_record
from txlbench.config.measurements import training_regime
from txlbench.config.run_config import RunConfig
from txlbench.errors import UserError
from txlbench.records.claim import ClaimLost, claimed
from txlbench.records.run_directory import RunDirectory
from txlbench.records.schema import EvaluationRecord, Facts, Failure, RunState, Status, Summary

CONFIGS = [
    {"corpus": "enwiki-sample"},
    {
        "corpus": {"name": "mine", "path": "a.txt", "level": "char"},
        "model": {"encoding": "shaw", "cutoffs": [10, 20], "clamp_len": 3},
        "train": {"lr": 1e-05, "recurrence": False, "loss": "half"},
        "evaluate": {"attention_lengths": [8, 4], "tokens": 10},
        "seed": 3,
    },
]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "xl-1").mkdir()
    return RunDirectory(tmp_path / "xl-1")


@pytest.mark.parametrize("raw", CONFIGS, ids=["default", "own"])
def test_the_configuration_comes_back_as_resolved(run: RunDirectory, raw: dict):
    config = RunConfig.model_validate(raw)
    run.write_config(config, {"ppl_init": 27.02, "note": "1e-3"}, "1e3: *a\nb")
    assert run.read_config() == config
    assert "ppl_init: 27.02" in (run.path / "config.yaml").read_text()


def test_an_edited_configuration_is_refused_with_its_line(run: RunDirectory):
    run.write_config(RunConfig.model_validate(CONFIGS[0]), {}, "A")
    path = run.path / "config.yaml"
    text = path.read_text()
    line = text[: text.index("n_layer")].count("\n") + 1
    path.write_text(text.replace("n_layer: 4", "n_layer: many"))
    with pytest.raises(UserError, match=rf"config.yaml:{line}: model.n_layer: 'many' found"):
        run.read_config()
    path.write_text("[]")
    with pytest.raises(UserError, match="not a run's configuration"):
        run.read_config()


def test_states_and_attempts(run: RunDirectory):
    assert (run.state, run.read_status()) == (RunState.QUEUED, Status())
    run.error_file.write_text("of an earlier attempt")
    run.start()
    assert not run.error_file.exists()
    assert (run.state, run.read_status().attempts) == (RunState.RUNNING, 1)
    run.set_state(RunState.FAILED, Failure(type="ValueError", message="m", where="a.py:1"))
    assert (run.state, run.read_status().error.type) == (RunState.FAILED, "ValueError")
    run.start()
    run.set_state(RunState.FAILED, Failure(type="ValueError"))
    run.set_state(RunState.FINISHED)
    status = run.read_status()
    assert (run.state, status.attempts, status.error) == (RunState.FINISHED, 2, None)
    assert "error" not in status.content


@pytest.mark.parametrize(
    ("summary", "state"),
    [
        ({"training": {}, "results": []}, RunState.FINISHED),
        ({"training": {}}, RunState.TRAINED),
        ({}, RunState.QUEUED),
    ],
)
def test_without_a_record_the_results_tell_the_state(run: RunDirectory, summary, state):
    run.write_summary(as_record(Summary, summary))
    assert run.read_status() == Status()
    assert run.state is state


def test_a_run_that_nobody_claims_any_more_was_interrupted(run: RunDirectory):
    with claimed(run.path):
        run.start()
        assert run.current_state is RunState.RUNNING
    assert (run.state, run.current_state) == (RunState.RUNNING, RunState.INTERRUPTED)
    run.set_state(RunState.FINISHED)
    assert run.current_state is RunState.FINISHED


def test_a_run_that_another_machine_holds_is_running_there(run: RunDirectory):
    """Its lock does not reach us."""
    run.set_state(RunState.RUNNING)
    (run.path / ".claim").touch()
    lease = run.path / ".claim.1"
    lease.write_text('{"host": "elsewhere.example", "machine": "elsewhere.example", "pid": 1}')
    assert run.current_state is RunState.RUNNING
    os.utime(lease, (0, 0))
    assert run.current_state is RunState.INTERRUPTED


def test_nothing_is_written_to_a_run_that_was_taken_over(run: RunDirectory):
    run.write_summary(Summary())
    with claimed(run.path):
        run.start()
        (run.path / ".claim.2").touch()
        for write in (
            run.start,
            lambda: run.set_state(RunState.FINISHED),
            lambda: run.write_summary(as_record(Summary, {"training": {}})),
            lambda: run.write_tokens(["a"]),
            lambda: run.write_facts(Facts(device="cpu")),
            lambda: run.note("slow"),
        ):
            with pytest.raises(ClaimLost):
                write()
    assert (run.state, run.attempts) == (RunState.RUNNING, 1)
    assert run.read_summary() == Summary()


DAMAGE = {
    "status.json": ["{", "[]", '{"state": "lost"}', '{"attempts": "two"}', '{"error": "bad"}'],
    "facts.json": ["{", "3", '{"corpus": []}', '{"corpus": {"vocabulary_size": 0}}'],
    "summary.json": ["nul", '{"results": [1]}', '{"training": {"seconds": -1}}'],
    "metrics.jsonl": ['{"step": 1}\nnonsense\n', '{"step": "x"}\n', "[]\n", '{"step": 1e999}\n'],
    "timings.jsonl": ['{"step": 1, "time": null}\n', "[" * 100_000 + "\n"],
    "config.yaml": ["{", "[]", "seed: 1"],
    "evaluations/a.json": ["{", '{"measurement": {}, "loss": NaN}'],
}


@pytest.mark.parametrize(("name", "content"), [(n, c) for n, many in DAMAGE.items() for c in many])
def test_damage_is_named_in_one_line(run: RunDirectory, name: str, content: str):
    run.write_config(RunConfig.model_validate(CONFIGS[0]), {}, "A")
    append_line(run.metrics_file, step=1, train_loss=2.5)
    run.set_state(RunState.FINISHED)
    assert run.damage() == ""
    path = run.path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    assert run.damage().startswith(str(path))
    assert "\n" not in run.damage()
    assert (run.current_state is RunState.DAMAGED) == (name == "status.json")


def test_a_torn_last_line_is_no_damage(run: RunDirectory):
    append_line(run.metrics_file, step=1, train_loss=2.5)
    with run.metrics_file.open("a") as file:
        file.write('{"step": 2, "tra')
    assert run.damage() == ""
    assert len(list(run.read_metrics())) == 1


def test_a_vocabulary_is_a_list_of_tokens(run: RunDirectory):
    run.write_tokens(["a", "b"])
    assert run.read_tokens() == ("a", "b")
    for content in ("3", '{"a": 0}', "[1]"):
        (run.path / "vocab.json").write_text(content)
        with pytest.raises(UserError, match="not a list of tokens"):
            run.read_tokens()


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "not a JSON file"), ("[]", "not a JSON object"), ('{"state": "lost"}', "'lost' found")],
)
def test_a_damaged_status_is_named(run: RunDirectory, content: str, message: str):
    (run.path / "status.json").write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        _ = run.state
    assert str(caught.value).startswith(str(run.path / "status.json"))


def test_metrics_come_back_in_order(run: RunDirectory):
    assert list(run.read_metrics()) == []
    append_line(run.metrics_file, step=1, train_loss=2.5)
    append_line(run.metrics_file, step=2, train_loss=2.25)
    assert [line.step for line in run.read_metrics()] == [1, 2]


def test_notes_are_of_one_attempt_and_said_once(run: RunDirectory):
    run.start()
    assert run.read_status().notes == ()
    for message in ("full", "slow", "full"):
        run.note(message)
    run.set_state(RunState.INTERRUPTED)
    assert run.read_status().notes == ("full", "slow")
    run.start()
    assert run.read_status().notes == ()


def test_evaluations_are_kept_with_how_they_were_made(run: RunDirectory):
    config = RunConfig.model_validate(CONFIGS[0])
    on_valid, on_test = training_regime(config, "valid"), training_regime(config, "test")
    assert run.read_evaluation(on_valid) is None
    record = EvaluationRecord(measurement=on_valid, loss=1.5, tokens=9)
    run.write_evaluation(record)
    assert run.read_evaluation(on_valid) == record
    content = json.loads((run.evaluations / f"{on_valid.key}.json").read_text())
    assert content == {
        "measurement": on_valid.model_dump(mode="json"),
        "loss": 1.5,
        "tokens": 9,
    }
    assert run.read_evaluation(on_test) is None


def test_facts_and_summary(run: RunDirectory):
    assert (run.read_facts(), run.read_summary()) == (Facts(), Summary())
    facts, summary = Facts(device="cpu"), as_record(Summary, {"training": {}, "added": [1.0]})
    run.write_facts(facts)
    run.write_summary(summary)
    assert (run.read_facts(), run.read_summary()) == (facts, summary)
    assert json.loads((run.path / "summary.json").read_text()) == {"training": {}, "added": [1.0]}
