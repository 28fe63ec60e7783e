"""Records hold what their files hold: keys of other versions stay, and faults are named."""

import json

import pytest
from pydantic import ValidationError

from tests.records.as_record import as_record
from txlbench.config.identity import hashed_fields
from txlbench.config.measurements import training_regime
from txlbench.config.run_config import RunConfig
from txlbench.errors import UserError
from txlbench.records.schema import (
    EvaluationRecord,
    Facts,
    RunState,
    Status,
    Summary,
    read_record,
)

CONFIG = RunConfig.model_validate({"corpus": "enwiki-sample"})
EVALUATION = {
    "measurement": training_regime(CONFIG, "test").model_dump(mode="json"),
    "loss": 1.5,
    "tokens": 9,
}
CONTENTS = [
    (Status, {"state": "running", "attempts": 2, "started": 1.5, "added": {"a": [None]}}),
    (Facts, {"commit": None, "threads": 1, "corpus": {"tokens": {"test": 3}, "added": 1}}),
    (EvaluationRecord, {**EVALUATION, "by_position": [1.0, None], "added": "x"}),
    (
        Summary,
        {
            "schema": "txlbench.summary/1",
            "training": {"steps": 3, "best_step": None},
            "results": [
                {
                    "evaluate": {"split": "test", "attention_lengths": [1, 2]},
                    **{"init": EVALUATION, "best": EVALUATION, "best_length": None},
                    **{"attention_length": 4, "by_position": EVALUATION},
                    "sweep": [{"attention_length": 4, "split": "test", "loss": 1.0}],
                }
            ],
        },
    ),
]


@pytest.mark.parametrize(("model", "content"), CONTENTS, ids=[m.__name__ for m, _ in CONTENTS])
def test_what_is_read_is_written_again_key_by_key(model, content, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(content))
    found = read_record(tmp_path / "a.json", model).content
    assert found == content
    assert list(found) == list(content)


def test_a_measurement_is_written_in_full():
    """Also of a record made here, most of whose settings are defaults."""
    record = EvaluationRecord(measurement=training_regime(CONFIG, "test"), loss=1.5, tokens=9)
    assert record.content == EVALUATION


@pytest.mark.parametrize(
    ("model", "content", "fault"),
    [
        (Status, '{"attempts": "two"}', "attempts: 'two' found; input should be a valid integer"),
        (Status, '{"error": {"type": 3}}', "error.type: 3 found"),
        (Facts, '{"corpus": {"tokens": {"test": -1}}}', "corpus.tokens.test: -1 found"),
        (Summary, '{"results": [{}]}', r"results.0.evaluate: missing (and 6 more); add it"),
        (
            EvaluationRecord,
            json.dumps(EVALUATION).replace("1.5", "1e999"),
            "loss: inf found; give a finite number",
        ),
        (Summary, "[]", "not a JSON object"),
        (Summary, '{"training": {"steps": 1', "not a JSON file"),
    ],
)
def test_what_does_not_fit_is_one_line_with_path_and_key(model, content, fault, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        read_record(path, model)
    assert str(caught.value).startswith(f"{path}: {fault}")
    assert "\n" not in str(caught.value)


def test_a_record_is_frozen_and_loses_a_key_in_a_copy():
    status = as_record(Status, {"state": "failed", "error": {"type": "E"}, "added": 1})
    with pytest.raises(ValidationError):
        status.state = RunState.FINISHED
    assert status.without("error").content == {"state": "failed", "added": 1}
    assert status.error is not None


def test_results_are_those_of_the_same_evaluation(tmp_path):
    (_, content) = CONTENTS[-1]
    content = json.loads(json.dumps(content))
    assert as_record(Summary, content).outcome(CONFIG.evaluate) is None
    (entry,) = content["results"]
    newer = {**entry, "evaluate": hashed_fields(CONFIG.evaluate), "best_length": 7}
    content["results"] += [{**newer, "best_length": 5}, newer]
    assert as_record(Summary, content).outcome(CONFIG.evaluate).best_length == 7


def test_a_state_is_its_word_in_json():
    assert json.dumps(RunState.FINISHED) == '"finished"'
    assert RunState("diverged") is RunState.DIVERGED


def test_bad_is_what_ended_without_numbers_or_cannot_be_read():
    bad = {RunState.FAILED, RunState.DIVERGED, RunState.DAMAGED}
    assert {state for state in RunState if state.is_bad} == bad
