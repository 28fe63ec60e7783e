"""The invariants of every shipped model hold, and each fails on a model that breaks it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from txlbench.cli.main import cli
from txlbench.commands import check as checking
from txlbench.commands.check import INVARIANTS, TGT_LEN, check, check_experiments, small, spec_files
from txlbench.config.catalogue import ENCODINGS, EncodingEntry
from txlbench.config.run_config import RunConfig
from txlbench.errors import UserError
from txlbench.models.transformer import Transformer
from txlbench.training import checkpoint

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def config(**model):
    return RunConfig.model_validate({"corpus": "enwiki-sample", "model": model})


@pytest.fixture
def breaking(monkeypatch):
    """Registers the encodings of `breaking`, for this test only."""
    for name in ("peeking", "mixing", "counting", "stretching"):
        entry = EncodingEntry(f"tests.runs.breaking:{name.capitalize()}Encoding")
        monkeypatch.setitem(ENCODINGS, name, entry)


def broken(given):
    differences, _ = check(small(given))
    return {
        name
        for name, found in differences.items()
        if found is not None and not found <= INVARIANTS[name]
    }


@pytest.mark.parametrize(
    ("names", "least"), [("smoke", 16), pytest.param("*", 40, marks=pytest.mark.full)]
)
def test_every_shipped_experiment_keeps_them(names, least):
    found = list(check_experiments(sorted(EXPERIMENTS.glob(f"{names}.yaml"))))
    assert len(found) >= least
    assert [each.labels for each in found if each.broken] == []
    claimed = [name for each in found for name, value in each.differences.items() if value is None]
    assert set(claimed) == {"segments", "distance"}


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("peeking", "causality"),
        ("mixing", "batches"),
        ("counting", "segments"),
        ("counting", "distance"),
        ("stretching", "contexts"),
    ],
)
@pytest.mark.usefixtures("breaking")
def test_an_encoding_that_breaks_one_is_found(name, what):
    assert what in broken(config(encoding=name))


def test_the_class_of_an_encoding_is_tested(monkeypatch):
    assert broken(config(encoding="fox")) == broken(config(encoding="learned")) == set()
    monkeypatch.setitem(ENCODINGS, "fox", replace(ENCODINGS["fox"], exactness="distance"))
    assert broken(config(encoding="fox")) == {"distance"}
    monkeypatch.setitem(ENCODINGS, "absolute", replace(ENCODINGS["absolute"], exactness="content"))
    assert broken(config(encoding="absolute")) == {"segments"}


def test_a_model_that_writes_its_old_memory_is_found(monkeypatch):
    forward = Transformer.forward

    def writing(self, tokens, state, observer=None):
        hidden, new = forward(self, tokens, state, observer)
        for tensor in state.tensors().values():
            tensor.mul_(1 + 1e-12)
        return hidden, new

    monkeypatch.setattr(Transformer, "forward", writing)
    assert broken(config()) == {"memory purity"}


def test_a_softmax_that_leaves_something_out_is_found(monkeypatch):
    log_probs = Transformer.log_probs
    monkeypatch.setattr(
        Transformer, "log_probs", lambda self, hidden: log_probs(self, hidden) + 1e-6
    )
    assert broken(config(cutoffs=[10, 20], div_val=2)) == {"softmax"}


def test_a_checkpoint_that_forgets_the_random_source_is_found(monkeypatch):
    monkeypatch.setattr(checkpoint.seeding, "restore", lambda state: None)
    assert broken(config(dropout=0.2)) == {"resumed"}
    assert broken(config(dropout=0.0)) == set()


def test_nan_holds_no_invariant(monkeypatch):
    monkeypatch.setattr(checking.invariants, "batches", lambda *_: float("nan"))
    assert broken(config()) == {"batches"}


def test_what_is_made_small_computes_as_before():
    given = RunConfig.model_validate(
        {
            "corpus": "wt103",
            "model": {
                "encoding": "shaw", "n_layer": 16, "d_model": 410, "d_embed": 400, "n_head": 10,
                "cutoffs": [20000, 40000, 200000], "div_val": 4, "clamp_len": 400,
                "tie_projs": [False, True, True, True], "pre_lnorm": True, "same_length": True,
            },
            "train": {"tgt_len": 150, "mem_len": 300, "batch_size": 60, "batch_chunk": 3,
                      "loss": "half"},
        }
    )  # fmt: skip
    made = small(given)
    assert made.model.n_layer == 2
    assert made.model.d_embed == 64
    assert made.model.d_model == 128
    for key in ("encoding", "div_val", "tie_projs", "pre_lnorm", "same_length"):
        assert getattr(made.model, key) == getattr(given.model, key)
    assert len(made.model.cutoffs) == 3
    assert (made.train.tgt_len, made.train.mem_len) == (TGT_LEN, 2 * TGT_LEN)
    assert (made.train.loss, made.train.batch_chunk) == ("half", 2)


def invoked(*arguments):
    result = CliRunner().invoke(cli, ["check", *arguments], standalone_mode=False)
    return result.return_value, result.stdout, result.stderr


@pytest.mark.full
def test_the_table_names_each_encoding_with_every_invariant():
    status, printed, complaint = invoked()
    assert (status, complaint) == (0, "")
    header, rule, rows = printed.partition("---")
    assert {word for name in INVARIANTS for word in name.split()} <= {*header.split()}
    rows = (rule + rows).splitlines()[1:]
    assert {"xl, with recurrence", "al-rfou, without recurrence"} <= {
        row.split("  ")[0] for row in rows
    }
    assert "BROKEN" not in printed


@pytest.mark.usefixtures("breaking")
def test_a_broken_invariant_is_named_and_exits_with_1(tmp_path):
    spec = tmp_path / "mine.yaml"
    spec.write_text(
        "name: mine\ncorpus: enwiki-sample\n"
        "rows:\n- {label: good, set: {model.encoding: xl}}\n"
        "- {label: bad, set: {model.encoding: peeking}}\n"
    )
    status, printed, complaint = invoked(str(spec))
    assert status == 1
    assert complaint.startswith("bad: causality does not hold: differs by ")
    assert "good" not in complaint
    assert "BROKEN" in printed


def test_folders_are_searched_and_empty_ones_refused(tmp_path):
    with pytest.raises(UserError, match="no experiment file"):
        spec_files([tmp_path])
    (tmp_path / "a.yaml").write_text("name: a")
    assert spec_files([tmp_path]) == [tmp_path / "a.yaml"]


def test_equal_models_are_checked_once(tmp_path):
    spec = tmp_path / "a.yaml"
    spec.write_text(
        "name: a\ncorpus: enwiki-sample\nrows:\n"
        "- {label: one, set: {train.lr: 0.1}}\n- {label: two, set: {train.lr: 0.2}}\n"
    )
    torch.manual_seed(0)
    (found,) = check_experiments([spec])
    assert found.labels == ("one", "two")
