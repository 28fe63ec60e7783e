"""Which settings make another run, and the ids that results have been published under."""

from typing import Any

import pytest

from tests.config.experiments import run
from txlbench.config.identity import (
    decisive_settings,
    differences,
    fingerprint,
    hashed_fields,
    run_id,
)
from txlbench.config.measurements import training_regime
from txlbench.config.run_config import EvaluateConfig
from txlbench.config.train import TrainConfig

OWN = {"name": "mine", "path": "a.txt", "level": "char"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"model": {"encoding": "xl"}}),
        ({}, {"evaluate": {"tokens": 100, "attention_lengths": [4], "clamp_len": 3}}),
        ({}, {"train": {"log_interval": 7}}),
        ({}, {"corpus": {"name": "enwiki-sample", "level": "byte"}}),
        ({}, {"train": {"lr": 0.00025, "mem_len": 64}}),
        ({"train": {"recurrence": False}}, {"train": {"mem_len": 0}}),
        ({"train": {"mem_len": 0}}, {"train": {"mem_len": 0, "memory_reset": 0.1}}),
        ({}, {"train": {"memory_reset": 0.0, "memory_reset_from": 0.2}}),
        ({"model": {"dropout": 0}}, {"model": {"dropout": 0.0}}),
        ({"corpus": OWN}, {"corpus": {**OWN, "path": "elsewhere/b.txt"}}),
        ({"model": {}}, {"model": {"d_head": 32, "d_inner": 512, "d_embed": 128}}),
    ],
    ids=str,
)
def test_what_does_not_decide_the_weights_is_not_hashed(one: dict[str, Any], other: dict[str, Any]):
    assert run_id(run(**one)) == run_id(run(**other))


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2},
        {"corpus": "wt103"},
        {"model": {"n_layer": 5}},
        {"model": {"encoding": "absolute"}},
        {"model": {"encoding": "shaw"}},
        {"model": {"init_std": 0.03}},
        {"model": {"clamp_len": 5}},
        {"train": {"lr": 0.00026}},
        {"train": {"mem_len": 63}},
        {"train": {"recurrence": False}},
        {"train": {"loss": "half"}},
        {"train": {"max_step": 999}},
        {"train": {"precision": "fp32"}},
        {"train": {"eval_interval": 100}},
        {"train": {"batch_chunk": 2}},
        {"train": {"memory_reset": 0.1}},
    ],
    ids=str,
)
def test_what_decides_the_weights_is_hashed(change: dict[str, Any]):
    assert run_id(run(**change)).split("-")[-1] != run_id(run()).split("-")[-1]


def test_a_corpus_is_its_name_level_and_split_rule():
    with_files = {**OWN, "valid": "b.txt", "test": "c.txt"}
    corpora = [OWN, {**OWN, "name": "other"}, {**OWN, "level": "word"}, with_files]
    assert len({run_id(run(corpus=corpus)) for corpus in corpora}) == 4


def test_the_slug_says_what_is_compared():
    config = run(model={"encoding": "shaw"}, train={"mem_len": 0, "loss": "half"}, seed=7)
    assert run_id(config).startswith("shaw-norec-half-s7-")
    assert run_id(run()).startswith("xl-rec-full-s1-")


def test_a_field_added_later_leaves_old_ids_alone(monkeypatch: pytest.MonkeyPatch):
    before, changed = run_id(run()), run(train={"warmup_step": 3})
    other = run_id(changed)
    monkeypatch.setattr(TrainConfig, "ADDED", {**TrainConfig.ADDED, "warmup_step": 0})
    assert run_id(run()) != before  # as if the field were not there
    assert run_id(changed) == other


def test_a_fingerprint_does_not_depend_on_the_order_of_keys():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert len(fingerprint(1, 12)) == 12


WT103_BASE = {
    "corpus": "wt103",
    "model": {
        "n_layer": 16,
        "d_model": 410,
        "n_head": 10,
        "d_head": 41,
        "d_inner": 2100,
        "cutoffs": [20000, 40000, 200000],
        "tie_projs": [False, True, True, True],
    },
    "train": {"tgt_len": 150, "batch_size": 60, "max_step": 200000},
}
SHAW = {
    "model": {"encoding": "shaw"},
    "train": {"recurrence": False, "loss": "half"},
    "seed": 2,
}
AL_RFOU = {"model": {"encoding": "al-rfou"}, "train": {"recurrence": False, "loss": "half"}}
INCOHERENT = {"model": {"encoding": "absolute"}, "train": {"mem_len": 16, "tgt_len": 16}}

PUBLISHED: list[tuple[dict[str, Any], str]] = [
    ({}, "xl-rec-full-s1-5bb51c7a"),
    (SHAW, "shaw-norec-half-s2-9b3a0d53"),
    (INCOHERENT, "absolute-rec-full-s1-9699acd9"),
    (AL_RFOU, "al-rfou-norec-half-s1-7753144c"),
    (WT103_BASE, "xl-rec-full-s1-af21101c"),
    ({"corpus": OWN}, "xl-rec-full-s1-c91b818f"),
]

WHY = """The id of a configuration that results exist for has changed, so every run made before
would be trained again. If a field was added, give its old behaviour in the section's ADDED.
Update this list only if what is trained has really changed, and say so in the changelog."""


@pytest.mark.parametrize(("sections", "published"), PUBLISHED, ids=lambda value: str(value)[:30])
def test_published_ids_stay(sections: dict[str, Any], published: str):
    assert run_id(run(**sections)) == published, WHY


def test_when_checkpoints_are_written_is_no_part_of_the_identity():
    saving = {"checkpoint_interval": 3, "checkpoint_minutes": None}
    assert run_id(run(train=saving)) == run_id(run())


def test_decisive_settings_differ_where_ids_do_and_say_how():
    old = decisive_settings(run(train={"log_interval": 3}))
    new = decisive_settings(run(train={"lr": 0.5}, seed=2))
    assert differences(old, new) == ["train.lr was 0.00025 and is 0.5", "seed was 1 and is 2"]
    assert differences(old, decisive_settings(run(corpus={"name": "enwiki-sample"}))) == []
    assert differences({}, new) == []  # of a time when nothing was noted


def test_results_of_earlier_versions_are_found():
    """Outcomes and evaluations were stored under these settings; later ones count where set."""
    config = run()
    stored = {
        *("split", "tgt_len", "mem_len", "batch_size", "attention_lengths"),
        *("clamp_len", "tokens", "stride", "tolerance"),
    }
    assert set(hashed_fields(config.evaluate)) == stored
    regime = training_regime(run(train={"recurrence": False, "tgt_len": 16}), "test")
    assert set(hashed_fields(regime)) == {
        *("regime", "split", "tgt_len", "stride", "mem_len", "same_length", "attention_length"),
        *("clamp_len", "batch_size", "tokens", "exact"),
    }
    assert "rope_scaling" in hashed_fields(EvaluateConfig(rope_scaling="ntk"))
