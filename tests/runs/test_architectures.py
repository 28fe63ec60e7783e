"""Rows of transformers' architectures are trained, measured, stopped and refused like any other."""

import sys

import pytest

from tests.models.architectures.tiny import TINY
from tests.runs.test_resuming import check_same, interrupt, kill
from tests.runs.trial import Watched, finished, prepared, write_spec
from txlbench.cli.main import cli
from txlbench.errors import ExitStatus, UserError
from txlbench.records.schema import RunState
from txlbench.runs.ablation import ablate
from txlbench.runs.plan import Request
from txlbench.runs.train_run import execute


def settings(name: str, **train: object) -> dict[str, object]:
    return {
        "model.kind": "hf",
        "model.architecture": name,
        "model.config": TINY[name],
        **{f"train.{key}": value for key, value in train.items()},
    }


GRID = [
    {"label": "Transformer-XL", "set": {"model.encoding": "xl"}},
    *({"label": name, "set": settings(name)} for name in ("llama", "gpt_neox", "gemma2")),
    {"label": "qwen3_next", "set": settings("qwen3_next")},
    {"label": "llama half", "set": settings("llama", loss="half", memory_reset=0.3)},
    *(
        {"label": f"{name} alone", "set": settings(name, recurrence=False)}
        for name in ("mamba", "gpt2")
    ),
]


@pytest.mark.full
@pytest.mark.usefixtures("one_process")
def test_they_stand_in_one_table_with_our_own():
    spec = write_spec({"train.max_step": 4, "train.tgt_len": 6, "train.mem_len": 6}, rows=GRID)
    watched = Watched()
    outcome = ablate(Request(spec), watched)
    assert watched.outcomes == [(row["label"], "finished") for row in GRID]
    assert outcome.status is ExitStatus.DONE
    assert "llama half" in outcome.table
    again = Watched()
    ablate(Request(spec), again)
    assert again.started == []


@pytest.mark.parametrize(
    ("name", "stop"),
    [("llama", kill), pytest.param("qwen3_next", interrupt, marks=pytest.mark.full)],
)
def test_a_run_that_was_stopped_ends_as_one_that_was_not(name, stop):
    dropout = {"model.config": {**TINY[name], "attention_dropout": 0.3}}
    resets = {"train.memory_reset": 0.4} if name == "llama" else {}
    write_spec({**settings(name, average_from=0.3, mem_len=12), **dropout, **resets})
    straight = finished("straight/trial")
    run, job = prepared("stopped/trial")
    stop(job, 7)
    assert execute(job, lambda: False) is RunState.FINISHED
    check_same(run, straight)


def refusal(*arguments: str) -> str:
    """What `ablate spec.yaml` refuses, in its only line."""
    with pytest.raises(UserError) as raised:
        cli.main(["ablate", "spec.yaml", *arguments], standalone_mode=False)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_what_cannot_be_trained_is_refused_before_anything_starts(folder, arguments):
    row = {"label": "Mamba", "set": settings("mamba")}
    write_spec(rows=[row])
    assert "spec.yaml: row 'Mamba': train.recurrence: the memory of mamba" in refusal(*arguments)
    row["set"] |= {"train.recurrence": False, "model.config": {"hiden_size": 8}}
    write_spec(rows=[row])
    assert "did you mean 'hidden_size'?" in refusal(*arguments)
    assert not (folder / "results").exists()


@pytest.mark.parametrize("arguments", [(), ("--dry-run",)])
def test_without_the_extra_nothing_starts(monkeypatch, folder, arguments):
    for module in ("transformers", "transformers.utils"):
        monkeypatch.setitem(sys.modules, module, None)
    write_spec(settings("llama", mem_len=3))
    assert "pip install 'txlbench[hf]'" in refusal(*arguments)
    assert not (folder / "results").exists()


def test_a_large_model_is_tried_where_it_is_trained(monkeypatch):
    from txlbench.models.architectures import probe

    monkeypatch.setattr(probe, "TRIED_AT_ONCE", 0)
    write_spec(settings("mamba"))
    _, job = prepared()
    with pytest.raises(UserError, match="the memory of mamba cannot be carried"):
        execute(job, lambda: False)
