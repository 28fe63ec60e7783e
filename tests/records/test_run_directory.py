"""A run's directory gives back what was put into it, and says so where it cannot.

One process a run: claimed while it lives, free when it is gone.
"""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.records.as_record import append_line, as_record
from txlbench.config.measurements import training_regime
from txlbench.config.run_config import RunConfig
from txlbench.errors import UserError
from txlbench.records.run_directory import (
    SILENCE_SECONDS,
    RunDirectory,
    claimed,
    heartbeat,
    is_claimed,
)
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
    with claimed(run):
        run.start()
        assert run.current_state is RunState.RUNNING
    assert (run.state, run.current_state) == (RunState.RUNNING, RunState.INTERRUPTED)
    run.set_state(RunState.FINISHED)
    assert run.current_state is RunState.FINISHED


def test_a_run_of_another_machine_is_believed_while_it_gives_signs_of_life(run: RunDirectory):
    """Locks need not reach us from there."""
    path = run.path / "status.json"
    path.write_text('{"state": "running", "pid": 999999999, "host": "elsewhere.example"}')
    long_ago = time.time() - 2 * SILENCE_SECONDS
    assert run.current_state is RunState.RUNNING
    os.utime(path, (long_ago, long_ago))
    assert run.current_state is RunState.INTERRUPTED
    (run.path / ".claim").touch()
    os.utime(run.path / ".claim", (long_ago, long_ago))
    assert run.current_state is RunState.INTERRUPTED
    with heartbeat(run):
        time.sleep(0.01)
    assert run.current_state is RunState.RUNNING


def test_silence_is_judged_by_the_clock_of_the_file_system(run: RunDirectory, monkeypatch):
    (run.path / "status.json").write_text('{"state": "running", "host": "elsewhere.example"}')
    monkeypatch.setattr(time, "time", lambda: 4e9)  # this machine's clock is decades ahead
    assert run.current_state is RunState.RUNNING


def test_the_heartbeat_goes_on_while_the_process_is_busy(run: RunDirectory):
    (run.path / ".claim").touch()
    long_ago = time.time() - 2 * SILENCE_SECONDS
    with heartbeat(run, 0.01):
        for _ in range(3):
            os.utime(run.path / ".claim", (long_ago, long_ago))
            deadline = time.monotonic() + 10
            while (run.path / ".claim").stat().st_mtime < long_ago + 1:
                assert time.monotonic() < deadline
                time.sleep(0.005)
    os.utime(run.path / ".claim", (long_ago, long_ago))
    time.sleep(0.05)
    assert (run.path / ".claim").stat().st_mtime == pytest.approx(long_ago)


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


def test_a_claimed_run_is_refused_until_it_is_free(tmp_path):
    run = RunDirectory(tmp_path)
    with claimed(run) as mine, claimed(run, patience=0.05) as theirs:
        assert (mine, theirs) == (True, False)
    with claimed(run) as again:
        assert again


def test_a_dead_process_holds_nothing(tmp_path):
    code = (
        "import os, pathlib\n"
        "from txlbench.records.run_directory import claimed\n"
        "from txlbench.records.run_directory import RunDirectory\n"
        f"with claimed(RunDirectory(pathlib.Path({str(tmp_path)!r}))) as mine:\n"
        "    print(mine, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("True\n", -9)
    with claimed(RunDirectory(tmp_path)) as mine:
        assert mine


def test_looking_takes_nothing(tmp_path):
    run = RunDirectory(tmp_path)
    assert not is_claimed(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with claimed(run):
        assert is_claimed(tmp_path)
    assert not is_claimed(tmp_path)


def test_whoever_looks_all_the_time_keeps_nobody_out(tmp_path):
    """A worker that met a look would leave its run undone."""
    run, over = RunDirectory(tmp_path), threading.Event()

    def look():
        while not over.is_set():
            is_claimed(tmp_path)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(50):
            with claimed(run) as mine:
                assert mine
    finally:
        over.set()
        for looker in lookers:
            looker.join()
