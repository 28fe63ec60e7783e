"""`truth` judges the best seed of each row by what is known of the corpus."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.runs.trial import execute_all, plan_of, write_spec
from txlbench.commands import context_pass
from txlbench.commands.recl_request import ReclRequest
from txlbench.commands.truth import CONTEXTS, hold_against_truth, known_losses
from txlbench.config.run_config import CorpusConfig
from txlbench.data.planted import PROCESS
from txlbench.data.prepare import prepare
from txlbench.errors import UserError
from txlbench.runs.plan import Request, open_experiment

ASKED = ReclRequest(groups=(), contexts=CONTEXTS, tokens=1000, device="cpu", command="typed")
ROWS = [
    {"label": "memory 0", "set": {"train.mem_len": 0}},
    {"label": "memory 96", "set": {"train.mem_len": 96}},
]
PLACE = Path("results/trial-truth")
SETTINGS = {"train.tgt_len": 32, "train.max_step": 4, "evaluate.attention_lengths": []}


def opened(*args, **top):
    """The directory of an experiment, and its runs as planned."""
    experiment, directory, runs = open_experiment(Request(write_spec(*args, **top)))
    directory.write_spec(experiment)
    return directory, runs


@pytest.fixture
def place():
    """An experiment on `planted` whose first row is trained with two seeds, the other not."""
    directory, runs = opened(SETTINGS, corpus="planted", rows=ROWS, seeds=[1, 2])
    execute_all([run for run in runs if not run.config.train.recurrence])
    return directory


def test_the_best_seed_of_each_finished_row(place):
    text = hold_against_truth(place, ASKED).written.text
    record = json.loads((PLACE / "truth.json").read_text())
    (row,) = record["rows"]
    valid = {run.path.name: run.read_summary().training.best_valid_loss for run in place.runs()}
    assert row["run"] == min((name for name in valid if valid[name]), key=valid.__getitem__)
    assert (row["label"], row["mem_len"], row["tokens"]) == ("memory 0", 0, 1000)
    assert [line["true"] for line in row["recl"]] == [32, 32, 32]
    assert [line["recl_above_null"] for line in row["recl"]] == [32, 32, 32]
    assert "memory 0" in text
    assert "memory 96" not in text
    assert {path.name for path in PLACE.glob("truth.*")} == {
        *("truth.json", "truth.html", "truth.md", "truth.csv", "truth.tex")
    }


def test_the_streaming_optimum_is_of_the_same_tokens(place):
    hold_against_truth(place, ASKED)
    (row,) = json.loads((PLACE / "truth.json").read_text())["rows"]
    streaming = row["streaming"]
    assert streaming["tokens"] == 60
    assert 0 < streaming["optimum"] < np.log(16) < 3 < streaming["loss"] < 4.5  # hardly trained


@pytest.mark.parametrize(("mem_len", "recl"), [(0, 32), (32, 32), (96, 96), (160, 160), (224, 224)])
def test_what_memory_shows_is_the_true_recl(mem_len, recl):
    write_spec({**SETTINGS, "train.mem_len": mem_len}, corpus="planted")
    (run,) = plan_of()
    positions = np.arange(1000, 5000)
    known = known_losses(run.config, positions, np.array(CONTEXTS)).mean(axis=1)
    falls = known[:-1] - known[1:] > 0.2
    assert falls.tolist() == [context < recl for context in CONTEXTS[:-1]]
    ids = prepare(CorpusConfig(name="planted")).ids("test")
    reached = min(recl, 288)
    best = PROCESS.losses(ids, positions, np.array(reached)).mean()
    assert known[-1] == pytest.approx(best, abs=1e-12)


def test_another_corpus_is_refused():
    directory, runs = opened()
    execute_all(runs)
    with pytest.raises(UserError, match="corpus mine; the truth is known of planted only"):
        hold_against_truth(directory, ASKED)


def test_nothing_finished_is_refused():
    directory, _ = opened(SETTINGS, corpus="planted")
    with pytest.raises(UserError, match="no run is finished; run `make planted`"):
        hold_against_truth(directory, ASKED)


def test_too_few_tokens_are_refused_before_a_model_is_read(place, monkeypatch):
    """It had taken 12 s to say so."""
    monkeypatch.setattr(context_pass, "compute", lambda *_: pytest.fail("a model was read"))
    with pytest.raises(UserError, match=r"too few tokens: 500, .* at least 800 tokens"):
        hold_against_truth(place, replace(ASKED, tokens=500))
