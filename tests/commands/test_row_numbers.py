"""One row, one number: whichever verb measures a row, and however, the loss is the table's."""

import itertools
import os
from pathlib import Path

import numpy as np
import pytest

from tests.runs.trial import SPEC, execute_all, plan_of, write_spec, write_text
from txlbench.commands.evaluate import EvalRequest, evaluate
from txlbench.commands.model_ref import resolve
from txlbench.commands.recl_request import ReclRequest
from txlbench.commands.stored_losses import context_losses_of
from txlbench.config.measurements import attention_lengths

ATTENDING = [
    {"model.encoding": encoding, "train.recurrence": recurrence, "train.loss": loss}
    for encoding, recurrence, loss in itertools.product(
        ("xl", "shaw", "absolute", "al-rfou"), (True, False), ("full", "half")
    )
]
OTHERS = [
    {"model.kind": "lstm"},
    {"model.kind": "qrnn", "train.loss": "half"},
    {"model.kind": "gated-delta"},
    {"model.same_length": True},
    {"train.average_from": 0.0},
    {"train.average_from": 0.0, "train.recurrence": False, "train.loss": "half"},
    {"train.memory_reset": 0.5, "train.memory_reset_from": 0.0},
    {"model.memory": "compressive"},
    {
        "model.encoding": "rope",
        "evaluate.clamp_len": None,
        "evaluate.rope_scaling": "yarn",
        "evaluate.rope_factor": 4.0,
    },
]
BYTES = [*ATTENDING, *OTHERS]
LEVELS = [
    {"train.recurrence": recurrence, "train.loss": loss, "train.average_from": average}
    for recurrence, loss, average in ((True, "full", None), (False, "half", 0.0))
]
# Each differs from what a verb would take by itself.
EVALUATE = {
    **{"split": "valid", "batch_size": 3, "attention_lengths": [4, 8], "tokens": 41},
    **{"clamp_len": 3, "stride": 3, "tgt_len": 5},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Experiments at each level, trained and measured: their runs by level and row."""
    folder = tmp_path_factory.mktemp("rows")
    before = Path.cwd()
    os.chdir(folder)
    try:
        write_text(Path("mine.txt"))
        runs = {
            (level, index): run
            for level, rows in (("byte", BYTES), ("char", LEVELS), ("word", LEVELS))
            for index, run in enumerate(trained(level, rows))
        }
    finally:
        os.chdir(before)
    return folder, runs


def trained(level, rows):
    train = {**SPEC["train"], "max_step": 3, "eval_interval": 2, "warmup_step": 1}
    lines = [{"label": f"row {index}", "set": row} for index, row in enumerate(rows)]
    corpus = {**SPEC["corpus"], "level": level}
    write_spec(name=level, corpus=corpus, train=train, evaluate=EVALUATE, rows=lines)
    runs = [run.directory for run in plan_of(out=Path("results") / level)]
    execute_all(plan_of(out=Path("results") / level))
    return runs


KINDS = [
    *(("byte", index) for index in range(len(BYTES))),
    *itertools.product(("char", "word"), range(len(LEVELS))),
]


def name(kind):
    level, index = kind
    row = (BYTES if level == "byte" else LEVELS)[index]
    return f"{level} {' '.join(map(str, row.values()))}"


@pytest.fixture(params=KINDS, ids=name)
def run(request, place, monkeypatch):
    folder, runs = place
    monkeypatch.chdir(folder)
    return runs[request.param]


def asked(run, **options):
    return evaluate(EvalRequest(str(run.path), device="cpu", **options))


def test_eval_without_options_is_the_tables_init(run):
    init = run.read_summary().content["results"][0]["init"]
    (found,) = asked(run)
    assert found.score.loss == pytest.approx(init["loss"], abs=1e-6)
    assert found.measurement.model_dump(mode="json") == init["measurement"]


def test_eval_at_attention_lengths_is_the_sweep(run):
    config = run.read_config()
    lengths = attention_lengths(config)
    sweep = run.read_summary().content["results"][0]["sweep"]
    expected = {e["attention_length"]: e["loss"] for e in sweep if e["split"] == "valid"}
    assert set(expected) == set(lengths)
    if not lengths:
        return
    found = asked(run, attention_lengths=lengths)
    losses = {each.measurement.attention_length: each.score.loss for each in found}
    assert losses == {length: pytest.approx(loss, abs=1e-6) for length, loss in expected.items()}


def test_the_last_checkpoint_is_what_was_validated_last(run):
    last, best = (resolve(str(run.path), name).load("cpu").model for name in ("last", "best"))
    training = run.read_summary().content["training"]
    if training["best_step"] == training["steps"]:
        for one, other in zip(last.parameters(), best.parameters(), strict=True):
            assert one.equal(other)


def test_recl_scores_a_token_in_its_window_as_eval_does_at_that_length(run):
    """The last token of a window of c tokens has the context c."""
    config = run.read_config()
    if config.model.is_recurrent or config.train.recurrence or config.model.same_length:
        return  # their sweep carries memory over the beginning of the window
    kept = context_losses_of(
        str(run.path), ReclRequest((), contexts=(3, 4), tokens=3, split="valid", device="cpu")
    ).losses
    one_window = {"tgt_len": 4, "batch_size": 1, "clamp_len": 3, "losses": Path("one.npz")}
    for position, loss in zip(kept.positions, kept.losses[1], strict=True):
        np.save("ids.npy", ids_of(run)[position - 4 : position + 1])
        asked(run, tokens=Path("ids.npy"), **one_window)
        with np.load("one.npz") as file:
            assert file["losses"][-1] == pytest.approx(loss, abs=1e-5)


def ids_of(run):
    from txlbench.data.prepare import prepare

    return np.array(prepare(run.read_config().corpus).ids("valid"))
