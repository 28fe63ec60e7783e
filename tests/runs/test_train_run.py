"""One run from its directory to its summary: files, numbers, and exact continuation."""

import json
import math

import pytest

from tests.runs.trial import (
    execute_all,
    finished,
    lines,
    plan_of,
    prepared,
    snapshot,
    stopping_after,
    write_spec,
)
from txlbench.records.schema import AttentionFacts, RunState
from txlbench.runs import train_run
from txlbench.runs.train_run import execute
from txlbench.training.checkpoint import load
from txlbench.training.loop import Diverged


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
        "vocab.json",
    }
    assert {path.name for path in run.checkpoints.iterdir()} == {
        "last.pt",
        "previous.pt",
        "best.pt",
    }
    status = run.read_status()
    assert (status.state, status.attempts) == ("finished", 1)
    facts = run.read_facts()
    assert facts.device == "cpu"
    assert facts.threads == 1
    assert facts.attention.path == "tiles"
    assert facts.corpus.tokens.keys() == {"train", "valid", "test"}
    assert facts.parameters > 0


def test_a_kernel_that_failed_its_test_is_told_of(monkeypatch):
    found = AttentionFacts(path="plain", reason="no compiler")
    monkeypatch.setattr(train_run, "settle_attention", lambda *_: found)
    write_spec()
    run = finished()
    assert run.read_facts().attention == found
    assert [note for note in run.read_status().notes if note.endswith("its test: no compiler")]
    records = [json.loads(file.read_text()) for file in run.evaluations.iterdir()]
    assert {record["attention"] for record in records} == {"sdpa"}


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
    assert [timing.step for timing in timings] == [3, 6, 9, 12]


def test_the_summary_says_what_the_evaluations_say():
    write_spec()
    run = finished()
    summary = run.read_summary().content
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
    if by_length["valid", None]["loss"] < on_valid[best]:
        best = None
    assert result["best_length"] == best
    assert result["best"] == by_length["test", best]
    assert result["init"] == by_length["test", None]
    lowest = min(by_length["valid", best]["loss"], *on_valid.values())
    assert result["attention_length"] == min(
        (length for length, loss in on_valid.items() if loss <= lowest + 5e-4), default=None
    )
    for record in records:
        assert record["tokens"] == 60
        assert record["dropped"] == 0
        assert 0 < record["loss"] < math.log(256) + 0.5


def test_lengths_are_chosen_on_valid_and_reported_on_the_split():
    """With losses of our own in the records, from which the summary is made again."""
    write_spec({"evaluate.attention_lengths": [4, 8, 12]})
    run, job = prepared()
    execute(job, lambda: False)
    losses = {"valid": {4: 1.0004, 8: 1.0, 12: 1.2}, "test": {4: 3.0, 8: 5.0, 12: 1.0}}
    for path in run.evaluations.iterdir():
        record = json.loads(path.read_text())
        measured = record["measurement"]
        if measured["attention_length"]:
            record["loss"] = losses[measured["split"]][measured["attention_length"]]
            path.write_text(json.dumps(record))
    assert execute(job, lambda: False) is RunState.FINISHED
    (result,) = run.read_summary().content["results"]
    assert result["best_length"] == 8
    assert result["best"]["loss"] == 5.0
    assert result["attention_length"] == 4  # within 5e-4 nats of the best


def test_the_training_regime_is_the_best_where_it_is_on_valid():
    write_spec({"evaluate.attention_lengths": [4, 8]})
    run, job = prepared()
    execute(job, lambda: False)
    for path in run.evaluations.iterdir():
        record = json.loads(path.read_text())
        swept = record["measurement"]["attention_length"]
        record["loss"] = {None: 1.0, 4: 1.0003, 8: 1.2}[swept]
        path.write_text(json.dumps(record))
    assert execute(job, lambda: False) is RunState.FINISHED
    (result,) = run.read_summary().content["results"]
    assert result["best_length"] is None
    assert result["best"] == result["init"]
    assert result["attention_length"] == 4


def test_the_summary_of_the_training_is_what_the_metrics_say():
    write_spec()
    run = finished()
    training = run.read_summary().content["training"]
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
    training = run.read_summary().content["training"]
    assert training["best_step"] < 12
    (note,) = run.read_status().notes
    assert note.startswith(f"the loss exploded after step {training['best_step']}")
    assert load(run.checkpoints / "best.pt")["progress"]["step"] == training["best_step"]
    (result,) = run.read_summary().content["results"]
    assert result["init"]["step"] == training["best_step"]
    assert result["init"]["checkpoint"] == "best"


def test_a_training_far_above_a_uniform_guess_has_diverged():
    write_spec({"train.lr": 5000.0, "train.warmup_step": 0, "train.eval_interval": 6})
    run, job = prepared()
    with pytest.raises(Diverged, match=r"uniform guess has 5.545; lower train.lr \(5000\)"):
        execute(job, lambda: False)
    assert run.read_summary().training is None


def test_the_validation_loss_is_the_evaluators():
    """Same split, same targets, same regime: the number of the last step is found again."""
    write_spec({"train.max_step": 5, "evaluate.split": "valid", "evaluate.batch_size": 10})
    run = finished()
    (result,) = run.read_summary().content["results"]
    assert lines(run)[-1]["valid_loss"] == pytest.approx(result["init"]["loss"], abs=1e-9)


def test_the_same_seed_twice_gives_the_same_metrics():
    write_spec()
    first, second = finished("one/trial"), finished("two/trial")
    assert first.path != second.path
    assert first.metrics_file.read_bytes() == second.metrics_file.read_bytes()


def test_how_a_run_is_measured_does_not_change_how_it_trains():
    """`evaluate` is no part of a run's identity, so it must not reach the training."""
    metrics = []
    for name, settings in (
        ("one", {}),
        ("two", {"evaluate.batch_size": 2, "evaluate.tgt_len": 3, "evaluate.tokens": 20}),
    ):
        write_spec({"train.eval_tokens": None, **settings})
        metrics.append(finished(f"results/{name}").metrics_file.read_bytes())
    assert metrics[0] == metrics[1]


def test_another_seed_gives_other_metrics():
    write_spec()
    first = finished("one/trial")
    write_spec(seeds=[2])
    assert finished("two/trial").metrics_file.read_bytes() != first.metrics_file.read_bytes()


def test_measuring_stops_between_two_measurements_and_goes_on_from_there():
    write_spec()
    run, job = prepared()
    assert execute(job, stopping_after(12 + 2)) is RunState.INTERRUPTED  # steps, then measurements
    done = snapshot(run.evaluations)
    assert len(done) == 1
    assert run.read_summary().results is None
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
    (result,) = run.read_summary().content["results"]
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
    results = run.directory.read_summary().content["results"]
    assert [result["evaluate"]["attention_lengths"] for result in results] == [[4], [4, 6]]


@pytest.mark.parametrize("encoding", ["shaw", "absolute", "al-rfou"])
def test_windows_and_half_loss_run_through(encoding):
    write_spec({"model.encoding": encoding, "train.mem_len": 0, "train.loss": "half"})
    run = finished()
    (result,) = run.read_summary().content["results"]
    assert result["init"]["measurement"]["regime"] == "windows"
    assert run.read_summary().training.targets_trained == 4 * (8 + 4 * 11)


def test_a_run_that_diverges_raises_with_its_step():
    write_spec({"train.lr": 1e30, "train.warmup_step": 0})
    _, job = prepared()
    with pytest.raises(Diverged, match=r"at step [2-5]$"):
        execute(job, lambda: False)


def test_a_run_that_diverges_keeps_its_last_good_checkpoint():
    """Whatever asks for checkpoints, none is written of weights that are no numbers."""
    write_spec({"train.lr": 1e30, "train.warmup_step": 3, "train.checkpoint_interval": 1})
    run, job = prepared()
    with pytest.raises(Diverged) as caught:
        execute(job, lambda: False)
    failed_at = int(str(caught.value).split()[-1])
    content = load(run.checkpoints / "last.pt")
    assert content["progress"]["step"] == failed_at - 1
    kept = (run.checkpoints / "last.pt").read_bytes()
    with pytest.raises(Diverged, match=f"at step {failed_at}$"):
        execute(job, lambda: False)
    assert (run.checkpoints / "last.pt").read_bytes() == kept
