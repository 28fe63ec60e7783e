"""One run from its directory to its summary: files, numbers, and exact continuation."""

import json
import math
from pathlib import Path

import pytest
import torch

from tests.execution.trial import (
    execute_all,
    plan_of,
    prepared_job,
    snapshot,
    stopping_after,
    write_spec,
    write_text,
)
from txlbench.errors import UserError
from txlbench.execution.runner import execute
from txlbench.records.states import RunState
from txlbench.training.checkpoint import load
from txlbench.training.loop import Diverged


def prepared(out="results/trial"):
    """The only run of spec.yaml, and its job."""
    (run,) = plan_of(out=Path(out))
    return run.directory, prepared_job(run)


def finished(out="results/trial"):
    run, job = prepared(out)
    assert execute(job, lambda: False) is RunState.FINISHED
    return run


def lines(run):
    return [json.loads(line) for line in run.metrics_file.read_text().splitlines()]


def test_a_run_leaves_what_the_documentation_lists():
    write_spec()
    run = finished()
    names = {path.name for path in run.path.iterdir()}
    assert names == {
        "config.yaml",
        "facts.json",
        "status.json",
        "metrics.jsonl",
        "timings.jsonl",
        "summary.json",
        "checkpoints",
        "evaluations",
    }
    assert {path.name for path in run.checkpoints.iterdir()} == {"last.pt", "best.pt"}
    status = run.read_status()
    assert (status["state"], status["attempts"]) == ("finished", 1)
    facts = run.read_facts()
    assert facts["device"] == "cpu"
    assert facts["threads"] == 1
    assert facts["corpus"]["tokens"].keys() == {"train", "valid", "test"}
    assert facts["parameters"] > 0


def test_metrics_hold_reproducible_values_in_order():
    write_spec()
    run = finished()
    train = [line for line in lines(run) if "train_loss" in line]
    valid = [line for line in lines(run) if "valid_loss" in line]
    assert [line["step"] for line in train] == [3, 6, 9, 12]
    assert [line["step"] for line in valid] == [5, 10, 12]
    assert all(
        line.keys() == {"step", "tokens", "targets", "train_loss", "lr", "grad_norm"}
        for line in train
    )
    assert all(line.keys() == {"step", "tokens", "valid_loss"} for line in valid)
    assert [line["step"] for line in lines(run)] == sorted(line["step"] for line in lines(run))
    assert [line["tokens"] for line in train] == [32 * step for step in (3, 6, 9, 12)]
    timings = list(run.read_timings())
    assert [timing["step"] for timing in timings] == [3, 6, 9, 12]


def test_the_summary_says_what_the_evaluations_say():
    write_spec()
    run = finished()
    summary = run.read_summary()
    records = [json.loads(path.read_text()) for path in run.evaluations.iterdir()]
    (result,) = summary["results"]
    by_length = {
        (record["measurement"]["split"], record["measurement"]["attention_length"]): record
        for record in records
    }
    for split in ("valid", "test"):
        sweep = {e["attention_length"]: e["loss"] for e in result["sweep"] if e["split"] == split}
        assert sweep == {length: by_length[split, length]["loss"] for length in (4, 8)}
    on_valid = {length: by_length["valid", length]["loss"] for length in (4, 8)}
    best = min(on_valid, key=on_valid.get)
    assert result["best_length"] == best
    assert result["best"] == by_length["test", best]
    assert result["init"] == by_length["test", None]
    assert result["attention_length"] == min(
        length for length, loss in on_valid.items() if loss <= min(on_valid.values()) + 5e-4
    )
    for record in records:
        assert record["tokens"] == 60
        assert record["dropped"] == 0
        assert 0 < record["loss"] < math.log(256) + 0.5


def test_the_summary_of_the_training_is_what_the_metrics_say():
    write_spec()
    run = finished()
    training = run.read_summary()["training"]
    valid = {line["step"]: line["valid_loss"] for line in lines(run) if "valid_loss" in line}
    assert training["steps"] == 12
    assert training["targets_trained"] == 12 * 4 * 8
    assert training["final_valid_loss"] == valid[12]
    assert training["best_valid_loss"] == min(valid.values())
    assert valid[training["best_step"]] == training["best_valid_loss"]


def test_the_best_checkpoint_is_what_is_measured():
    """A learning rate that ruins the model after the first validation: best is not last."""
    write_spec({"train.lr": 3.0, "train.warmup_step": 12, "train.eval_interval": 2})
    run = finished()
    training = run.read_summary()["training"]
    assert training["best_step"] < 12
    assert load(run.checkpoints / "best.pt")["progress"]["step"] == training["best_step"]
    (result,) = run.read_summary()["results"]
    assert result["init"]["step"] == training["best_step"]
    assert result["init"]["checkpoint"] == "best"


def test_the_validation_loss_is_the_evaluators():
    """Same split, same targets, same regime: the number of the last step is found again."""
    write_spec({"train.max_step": 5, "evaluate.split": "valid"})
    run = finished()
    (result,) = run.read_summary()["results"]
    assert lines(run)[-1]["valid_loss"] == pytest.approx(result["init"]["loss"], abs=1e-9)


def test_the_same_seed_twice_gives_the_same_metrics():
    write_spec()
    first, second = finished("one/trial"), finished("two/trial")
    assert first.path != second.path
    assert first.metrics_file.read_bytes() == second.metrics_file.read_bytes()


def test_another_seed_gives_other_metrics():
    write_spec()
    first = finished("one/trial")
    write_spec(seeds=[2])
    assert finished("two/trial").metrics_file.read_bytes() != first.metrics_file.read_bytes()


EPOCH = 15
"""Segments of a stream in the text of 90 words."""


def equal(one, other):
    """Whether nested plain data and tensors are equal to the bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other


def check_same(run, other):
    assert run.metrics_file.read_bytes() == other.metrics_file.read_bytes()
    for name in ("last.pt", "best.pt"):
        assert equal(load(run.checkpoints / name), load(other.checkpoints / name)), name
    results = [each.read_summary()["results"][0]["sweep"] for each in (run, other)]
    assert results[0] == results[1]


def interrupt(job, steps):
    assert execute(job, stopping_after(steps)) is RunState.INTERRUPTED


def kill(job, steps):
    """As if the process had gone: no checkpoint is written, nothing is tidied."""
    with pytest.raises(KeyboardInterrupt):
        execute(job, stopping_after(steps, KeyboardInterrupt()))


STOPS = {
    "at the first step": [1],
    "before a log line, again and again": [2, 3],
    "after a validation": [6],
    "before an epoch": [EPOCH],
    "after the first step of an epoch": [EPOCH + 1],
}


@pytest.mark.parametrize("stop", [interrupt, kill])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(folder, stop, precision):
    """With dropout, memory and weight averages; all files equal to the bit."""
    write_text(folder / "mine.txt", words=90)
    write_spec(
        {
            "model.dropatt": 0.1,
            "train.precision": precision,
            "train.mem_len": 12,
            "train.max_step": EPOCH + 3,
            "train.average_from": 0.3,
            "evaluate.attention_lengths": [4],
        }
    )
    straight = finished("straight/trial")
    corpus = straight.read_facts()["corpus"]
    assert -(-((corpus["tokens"]["train"] - 1) // 4) // 8) == EPOCH
    for name, stops in STOPS.items():
        run, job = prepared(f"{name}/trial")
        for step in stops:
            stop(job, step)
        assert execute(job, lambda: False) is RunState.FINISHED
        check_same(run, straight)
        assert run.read_status()["attempts"] == len(stops) + 1


def test_a_run_killed_before_its_first_checkpoint_starts_again():
    write_spec()
    straight = finished("straight/trial")
    run, job = prepared("killed/trial")
    kill(job, 4)
    assert lines(run)
    assert not (run.checkpoints / "last.pt").exists()
    assert execute(job, lambda: False) is RunState.FINISHED
    check_same(run, straight)


def test_time_goes_on_where_it_was():
    write_spec()
    run, job = prepared()
    interrupt(job, 7)
    before = list(run.read_timings())[-1]["seconds"]
    execute(job, lambda: False)
    seconds = [timing["seconds"] for timing in run.read_timings()]
    assert seconds == sorted(seconds)
    assert seconds[2] > before
    assert run.read_summary()["training"]["seconds"] == seconds[-1]


def test_a_damaged_checkpoint_is_refused_by_name_and_lost_is_nothing():
    write_spec()
    run, job = prepared()
    interrupt(job, 7)
    last = run.checkpoints / "last.pt"
    last.write_bytes(last.read_bytes()[:1000])
    before = run.metrics_file.read_bytes()
    with pytest.raises(UserError, match=r"last\.pt: not a whole txlbench checkpoint; delete it"):
        execute(job, lambda: False)
    assert run.metrics_file.read_bytes() == before


def test_measuring_stops_between_two_measurements_and_goes_on_from_there():
    write_spec()
    run, job = prepared()
    assert execute(job, stopping_after(12 + 2)) is RunState.INTERRUPTED  # steps, then measurements
    done = snapshot(run.evaluations)
    assert len(done) == 1
    assert "results" not in run.read_summary()
    metrics = snapshot(run.path)["metrics.jsonl"]
    assert execute(job, lambda: False) is RunState.FINISHED
    assert snapshot(run.path)["metrics.jsonl"] == metrics
    assert snapshot(run.evaluations).items() > done.items()


def test_more_attention_lengths_are_measured_without_training():
    write_spec()
    run = finished()
    before = snapshot(run.path)
    write_spec({"evaluate.attention_lengths": [4, 8, 12]})
    (planned,) = plan_of()
    assert planned.directory.path.samefile(run.path)
    execute_all([planned])
    after = snapshot(run.path)
    new = set(after) - set(before)
    assert {name.split("-")[-2] for name in new} == {"a12"}
    assert len(new) == 2  # on valid and on test
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {"config.yaml", "status.json", "summary.json"}
    (result,) = run.read_summary()["results"]
    assert {entry["attention_length"] for entry in result["sweep"]} == {4, 8, 12}


def test_labels_that_measure_differently_get_a_result_each():
    write_spec(
        rows=[
            {"label": "one", "set": {"evaluate.attention_lengths": [4]}},
            {"label": "two", "set": {"evaluate.attention_lengths": [4, 6]}},
        ]
    )
    (run,) = plan_of()
    execute_all([run])
    results = run.directory.read_summary()["results"]
    assert [result["evaluate"]["attention_lengths"] for result in results] == [[4], [4, 6]]


@pytest.mark.parametrize("encoding", ["shaw", "absolute", "al-rfou"])
def test_windows_and_half_loss_run_through(encoding):
    write_spec({"model.encoding": encoding, "train.mem_len": 0, "train.loss": "half"})
    run = finished()
    (result,) = run.read_summary()["results"]
    assert result["init"]["measurement"]["regime"] == "windows"
    assert run.read_summary()["training"]["targets_trained"] == 4 * (8 + 4 * 11)


def test_a_run_that_diverges_raises_with_its_step():
    write_spec({"train.lr": 1e30, "train.warmup_step": 0})
    _, job = prepared()
    with pytest.raises(Diverged, match=r"at step [2-5]$"):
        execute(job, lambda: False)
