"""`speed` end to end on rows with random weights and on a trained run."""

import json
from pathlib import Path

import pytest
import torch

from tests.runs.trial import SPEC, finished, write_spec
from txlbench.commands.speed import SpeedRequest, _speedup, fresh_model, is_fresh, run_speed
from txlbench.errors import UserError

ROWS = [
    {"label": "XL", "paper": {"speedup_12": 363}},
    {
        "label": "Al-Rfou",
        "set": {"model.encoding": "al-rfou", "train.recurrence": False, "train.tgt_len": 24},
    },
    {"label": "LSTM", "set": {"model.kind": "lstm"}},
]


@pytest.fixture(autouse=True)
def rows():
    write_spec(corpus="enwik8-official", rows=ROWS)


def request(*models, **asked):
    lengths = {"attention_lengths": (12, 24), "tgt_lens": (1, 12), "rounds": 3}
    return SpeedRequest(models, **{**lengths, "device": "cpu", "command": "typed", **asked})


def record_of(*models, **asked):
    return json.loads(run_speed(request(*models, **asked)).path.read_text())


def test_every_model_is_timed_in_every_way_it_can_be_read():
    record = record_of("spec.yaml:XL", "spec.yaml:Al-Rfou", "spec.yaml:LSTM")
    found = {
        (line["model"], line["regime"], line["attention_length"], line["tgt_len"])
        for line in record["results"]
    }
    reuse = [(12, 1), (12, 12), (24, 1), (24, 24)]
    assert found == {
        *((name, "reuse", *each) for name in ("XL", "LSTM") for each in reuse),
        ("XL", "reuse", 24, 12),
        *((name, "window", length, None) for name in ("XL", "Al-Rfou") for length in (12, 24)),
    }
    assert record["baseline"] == "XL"
    assert record["models"]["LSTM"]["parameters"] > 0


def test_speedups_are_over_the_baseline_window():
    record = record_of("spec.yaml:LSTM", "spec.yaml:Al-Rfou", "spec.yaml:XL")
    assert record["baseline"] == "Al-Rfou"
    for line in record["results"]:
        speedup = line["speedup"]
        assert speedup["lower_quartile"] <= speedup["median"] <= speedup["upper_quartile"]
        assert line["speedup"]["min"] <= line["speedup"]["max"]


def test_the_papers_numbers_stand_beside_reuse():
    record = record_of("spec.yaml:XL")
    assert {
        (line["regime"], line["attention_length"], line["paper"]) for line in record["results"]
    } == {
        *(("window", length, None) for length in (12, 24)),
        *(("reuse", 12, 363), ("reuse", 24, None)),
    }


def test_a_trained_run_is_timed_as_well():
    write_spec()
    run = finished()
    record = record_of(str(run.path))
    assert {line["regime"] for line in record["results"]} == {"window", "reuse"}


@pytest.mark.full
def test_the_same_question_has_the_same_place():
    places = {
        run_speed(request("spec.yaml:XL", rounds=2, **asked)).path.parent
        for asked in ({}, {"command": "other"}, {"precision": "bf16"})
    }
    assert len(places) == 2
    torch.set_num_threads(2)
    try:
        elsewhere = run_speed(request("spec.yaml:XL", rounds=2)).path.parent
        same = run_speed(request("spec.yaml:XL", rounds=2, device="auto")).path.parent
    finally:
        torch.set_num_threads(1)
    assert elsewhere not in places
    assert same == elsewhere  # auto is the device that it stands for
    assert all(place.parent == Path("results") for place in places)


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        (["spec.yaml:LSTM"], "no model has a window"),
        (["spec.yaml:XLL"], "did you mean 'XL'"),
        (["spec.yaml"], "no such row"),
        (["nowhere.yaml:XL"], "nowhere.yaml"),
        (["nothing"], "no such model"),
    ],
)
def test_what_cannot_be_timed_is_refused(models, problem):
    with pytest.raises(UserError, match=problem):
        run_speed(request(*models))
    assert not Path("results").exists()


def test_windows_longer_than_learned_positions_are_refused():
    with pytest.raises(UserError, match="24 positions"):
        run_speed(request("spec.yaml:Al-Rfou", attention_lengths=(25,)))


def test_a_fresh_model_is_the_row_with_the_weights_it_begins_with():
    import torch

    loaded, again = (fresh_model("spec.yaml:XL").load(torch.device("cpu")) for _ in range(2))
    assert loaded.ref.capabilities.vocabulary_size == 204
    assert loaded.ref.paper == {"speedup_12": 363}
    assert loaded.settings.model.d_model == SPEC["model"]["d_model"]
    assert not loaded.model.training
    weights, others = loaded.model.state_dict(), again.model.state_dict()
    assert all(torch.equal(weights[name], others[name]) for name in weights)


def test_only_experiment_files_are_fresh():
    assert is_fresh("experiments/one.yaml:A row: with a colon")
    assert not is_fresh("hf:folder")
    assert not is_fresh("results/one/label")


def test_a_length_given_twice_is_timed_once_and_quartiles_lie_within_what_was_measured():
    record = record_of("spec.yaml:XL", attention_lengths=(24, 12, 24), rounds=2)
    assert record["attention_lengths"] == [24, 12]
    assert len(record["results"]) == len(
        {(line["regime"], line["attention_length"], line["tgt_len"]) for line in record["results"]}
    )
    for line in record["results"]:
        for summary in (line["seconds_per_token"], line["speedup"]):
            assert summary["min"] <= summary["lower_quartile"] <= summary["upper_quartile"]
            assert summary["upper_quartile"] <= summary["max"]


def test_a_speedup_lies_within_its_quartiles() -> None:
    """The ratio of medians, 0.4, does not: the ratios are 1, 0.4 and 1.6."""
    slow, fast = [1.0, 2.0, 8.0], [1.0, 5.0, 5.0]
    found = _speedup(slow, fast)
    assert (found.lower_quartile, found.median) == pytest.approx((0.7, 1.0))
    assert found.upper_quartile == pytest.approx(1.3)
