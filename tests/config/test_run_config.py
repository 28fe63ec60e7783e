"""What follows from what in a configuration, and what is refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from tests.config.experiments import experiment, run
from txlbench.config.identity import run_id
from txlbench.config.model import ModelConfig
from txlbench.config.run_config import CorpusConfig
from txlbench.config.train import TrainConfig
from txlbench.errors import UserError

# What follows from what


def test_sizes_that_are_left_out_follow_from_others():
    model = ModelConfig(d_model=96, n_head=5, cutoffs=(10, 20))
    assert (model.d_head, model.d_inner, model.d_embed) == (19, 384, 96)
    assert model.tie_projs == (False, False, False)
    given = ModelConfig(d_model=96, n_head=5, d_head=7, d_inner=8, d_embed=9)
    assert (given.d_head, given.d_inner, given.d_embed) == (7, 8, 9)
    assert ModelConfig(d_model=2, n_head=4).d_head == 1


@pytest.mark.parametrize(
    ("given", "recurrence", "mem_len"),
    [
        ({}, True, 32),
        ({"mem_len": 8}, True, 8),
        ({"mem_len": None}, True, 32),
        ({"mem_len": 0}, False, 0),
        ({"recurrence": False}, False, 0),
        ({"recurrence": False, "mem_len": 8}, False, 0),
        ({"recurrence": True, "mem_len": 0}, False, 0),
    ],
    ids=str,
)
def test_no_recurrence_is_no_memory(given: dict[str, Any], recurrence: bool, mem_len: int):
    train = TrainConfig.model_validate({"tgt_len": 32, **given})
    assert (train.recurrence, train.mem_len, train.memory) == (recurrence, mem_len, mem_len)


@pytest.mark.parametrize(
    ("loss", "tgt_len", "stride"),
    [("full", 7, 7), ("half", 8, 4), ("half", 7, 4), ("half", 2, 1), ("half", 1, 1)],
)
def test_half_loss_moves_on_by_what_it_trains(loss: str, tgt_len: int, stride: int):
    assert TrainConfig.model_validate({"loss": loss, "tgt_len": tgt_len}).stride == stride


@pytest.mark.parametrize(
    ("encoding", "train", "expected"),
    [
        ("shaw", {"tgt_len": 16, "mem_len": 20}, 35),
        ("shaw", {"tgt_len": 16, "recurrence": False}, 15),
        ("al-rfou", {"tgt_len": 16, "mem_len": 20}, 15),
        ("xl", {"tgt_len": 16}, None),
        ("absolute", {"tgt_len": 16}, None),
    ],
)
def test_learned_tables_are_as_long_as_training_needs(
    encoding: str, train: dict[str, Any], expected: int | None
):
    assert run(model={"encoding": encoding}, train=train).model.max_distance == expected
    assert run(model={"encoding": "shaw", "max_distance": 3}, train=train).model.max_distance == 3


def test_a_resolved_configuration_resolves_to_itself():
    for encoding in ("xl", "shaw", "al-rfou"):
        config = run(model={"encoding": encoding, "cutoffs": [10]}, train={"mem_len": 0})
        assert type(config).model_validate(config.model_dump(mode="json")) == config


def test_attention_lengths_are_sorted_and_distinct():
    config = run(evaluate={"attention_lengths": [64, 16, 64]})
    assert config.evaluate.attention_lengths == (16, 64)


def test_a_configuration_is_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        run().train.lr = 0.1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("corpus", "level", "unit", "rule"),
    [
        ({"name": "enwiki-sample"}, "byte", "bpc", "90/5/5"),
        ({"name": "wt103"}, "word", "ppl", "published"),
        ({"name": "mine", "path": "a.txt"}, "byte", "bpc", "90/5/5"),
        ({"name": "mine", "path": "a.txt", "level": "word"}, "word", "ppl", "90/5/5"),
        (
            {"name": "mine", "path": "a", "valid": "b", "test": "c", "level": "char"},
            "char",
            "bpc",
            "files",
        ),
    ],
    ids=str,
)
def test_what_a_corpus_implies(corpus: dict[str, str], level: str, unit: str, rule: str):
    config = CorpusConfig.model_validate(corpus)
    assert (config.resolved_level, config.unit, config.split_rule) == (level, unit, rule)


# What is refused: (text from line 3 on, the whole message)

REFUSED = {
    "unknown key, nearest spelling": (
        "model: {dropuot: 0.1}",
        "trial.yaml:3: model.dropuot: unknown key; did you mean 'dropout'? known: kind, *",
    ),
    "unknown section": (
        "modle: {}",
        "trial.yaml:3: modle: unknown key; did you mean 'model'? known: name, *",
    ),
    "unknown key of a row": (
        "rows:\n  - lable: x",
        "trial.yaml:4: rows.0.lable: unknown key; did you mean 'label'? "
        "known: label, set, paper, note, tuned",
    ),
    "unknown encoding": (
        "model:\n  encoding: shwa",
        "trial.yaml:4: model.encoding: unknown encoding 'shwa'; did you mean 'shaw'? known: *",
    ),
    "line break in a value": (
        'model: {encoding: "a\\nb"}',
        "trial.yaml:3: model.encoding: unknown encoding 'a b'; known: *",
    ),
    "wrong type": (
        "train:\n  tgt_len: 8\n  lr: fast",
        "trial.yaml:5: train.lr: 'fast' found; input should be a valid number",
    ),
    "a string is not a number": (
        "train: {lr: '1e-3'}",
        "trial.yaml:3: train.lr: '1e-3' found; input should be a valid number",
    ),
    "a float is not an integer": (
        "train: {max_step: 1e3}",
        "trial.yaml:3: train.max_step: 1000.0 found; input should be a valid integer",
    ),
    "true is not 1": (
        "train: {batch_size: true}",
        "trial.yaml:3: train.batch_size: True found; input should be a valid integer",
    ),
    "1 is not true": (
        "train: {recurrence: 1}",
        "trial.yaml:3: train.recurrence: 1 found; input should be a valid boolean",
    ),
    "not finite": ("train: {lr: .nan}", "trial.yaml:3: train.lr: nan found; give a finite number"),
    "infinite": ("train: {lr: .inf}", "trial.yaml:3: train.lr: inf found; give a finite number"),
    "too small": (
        "train: {tgt_len: 0, mem_len: 4}",
        "trial.yaml:3: train.tgt_len: 0 found; input should be greater than or equal to 1",
    ),
    "dropout 1": (
        "model: {dropout: 1.0}",
        "trial.yaml:3: model.dropout: 1.0 found; input should be less than 1",
    ),
    "a list is asked for": (
        "model: {cutoffs: 20}",
        "trial.yaml:3: model.cutoffs: 20 found; input should be a valid list",
    ),
    "items of a list": (
        "model: {cutoffs: [10, '20']}",
        "trial.yaml:3: model.cutoffs.1: '20' found; input should be a valid integer",
    ),
    "section without keys": (
        "model: 5",
        "trial.yaml:3: model: 5 found; input should be a valid mapping",
    ),
    "memory of the wrong type without recurrence": (
        "train: {recurrence: false, mem_len: much}",
        "trial.yaml:3: train.mem_len: 'much' found; input should be a valid integer",
    ),
    "memory 0.0": (
        "train: {mem_len: 0.0}",
        "trial.yaml:3: train.mem_len: 0.0 found; input should be a valid integer",
    ),
    "negative memory": (
        "train: {recurrence: false, mem_len: -5}",
        "trial.yaml:3: train.mem_len: -5 found; input should be greater than or equal to 0",
    ),
    "same_length without memory": (
        "model: {same_length: true}\ntrain: {recurrence: false}",
        "trial.yaml:*: model.same_length sees exactly mem_len keys, but there is no memory; "
        "set train.mem_len or drop same_length",
    ),
    "cutoffs descending": (
        "model: {cutoffs: [20, 10]}",
        "trial.yaml:3: model: cutoffs [20, 10] must be positive and ascending",
    ),
    "cutoffs twice": (
        "model: {cutoffs: [10, 10]}",
        "trial.yaml:3: model: cutoffs [10, 10] must be positive and ascending",
    ),
    "cutoff 0": (
        "model: {cutoffs: [0, 10]}",
        "trial.yaml:3: model: cutoffs [0, 10] must be positive and ascending",
    ),
    "too few ties": (
        "model: {cutoffs: [10], tie_projs: [true]}",
        "trial.yaml:3: model: tie_projs has 1 entries, but 1 cutoffs make 2 clusters; give 2",
    ),
    "nothing left of the last cluster": (
        "model: {cutoffs: [10, 20], div_val: 4, d_embed: 15}",
        "trial.yaml:3: model: div_val 4 leaves the last of 3 clusters no dimension of "
        "d_embed 15; lower div_val or drop a cutoff",
    ),
    "shaw_bias elsewhere": (
        "model: {shaw_bias: true}",
        "trial.yaml:3: model: shaw_bias goes with encoding shaw, not xl",
    ),
    "table too short for al-rfou": (
        "model: {encoding: al-rfou, max_distance: 6}\ntrain: {tgt_len: 8}",
        "trial.yaml:*: model.max_distance 6 is too small for al-rfou at train.tgt_len 8; "
        "leave it out",
    ),
    "segment too long for al-rfou": (
        "model: {encoding: al-rfou}\ntrain: {tgt_len: 8}\nevaluate: {tgt_len: 9}",
        "trial.yaml:*: evaluate.tgt_len 9 is too long for al-rfou, which learns 8 positions; "
        "use at most 8",
    ),
    "chunks": (
        "train: {batch_size: 5, batch_chunk: 2}",
        "trial.yaml:3: train: batch_chunk 2 does not divide batch_size 5",
    ),
    "endless warm-up": (
        "train: {warmup_step: 5, max_step: 4}",
        "trial.yaml:3: train: warmup_step 5 is beyond max_step 4; "
        "the learning rate would never be reached",
    ),
    "attention length 0": (
        "evaluate: {attention_lengths: [0, 4]}",
        "trial.yaml:3: evaluate.attention_lengths: attention lengths [0, 4] must be at least 1 "
        "and below 2^31",
    ),
    "an attention length beyond floats": (
        f"evaluate: {{attention_lengths: [{10**309}]}}",
        "trial.yaml:3: evaluate.attention_lengths: attention lengths * must be at least 1 *",
    ),
    "attention length 0 as memory": (
        "evaluate: {mem_len: 0}",
        "trial.yaml:3: evaluate.mem_len: 0 found; input should be greater than or equal to 1",
    ),
    "stride beyond the window": (
        "train: {recurrence: false}\nevaluate: {stride: 5, attention_lengths: [4, 8]}",
        "trial.yaml:*: evaluate.stride 5 is longer than the shortest attention length 4; "
        "tokens would be left out",
    ),
}


@pytest.mark.parametrize(("text", "message"), list(REFUSED.values()), ids=list(REFUSED))
def test_refusals_are_one_line_with_place_value_and_remedy(text: str, message: str):
    with pytest.raises(UserError) as caught:
        experiment(text)
    assert "\n" not in str(caught.value)
    assert_matches(str(caught.value).replace(" (row 'trial')", ""), message)


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ("enwiki-smaple", "unknown corpus 'enwiki-smaple'; did you mean 'enwiki-sample'? *"),
        ("{name: wt103, level: byte}", "level of wt103 is word, not byte"),
        ("{name: wt103, path: a.txt}", "name 'wt103' belongs to the catalogue; choose another *"),
        ("{name: wt103, valid: a.txt}", "valid, test and column need a path to the training text"),
        ("{name: mine, path: a, valid: b}", "give both valid and test, or neither *"),
        ("5", "5 is not a section; write keys below it"),
    ],
)
def test_corpora_that_cannot_be(corpus: str, message: str):
    with pytest.raises(UserError) as caught:
        experiment("", f"corpus={corpus}")
    assert_matches(str(caught.value), f"--set: corpus: {message}")


def test_corpus_names_are_safe_as_directories():
    for name in ("../x", "a/b", "", ".hidden", "a b"):
        with pytest.raises(ValidationError):
            CorpusConfig(name=name, path="text")


def assert_matches(text: str, pattern: str) -> None:
    """`*` stands for anything; the rest must be there literally and in order."""
    first, *parts = pattern.split("*")
    assert text.startswith(first), text
    for part in parts:
        assert part in text, text
    assert pattern.endswith("*") or text.endswith(pattern.split("*")[-1]), text


@pytest.mark.parametrize(
    ("corpus", "name"),
    [
        ("novel.txt", "novel"),
        ("{path: novel.txt}", "novel"),
        ("{path: novel.txt, name: mine}", "mine"),
        ("{name: novel.txt, level: word}", "novel"),
        ("{path: missing.txt}", "missing"),
    ],
)
def test_a_path_is_a_corpus_with_a_name(tmp_path, monkeypatch, corpus: str, name: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "novel.txt").write_text("A novel.")
    (line,) = experiment("", f"corpus={corpus}").lines
    found = line.configs[0].corpus
    path = "missing.txt" if "missing" in corpus else "novel.txt"
    assert (found.name, found.path) == (name, path)


def of_architecture(name, config=None, **train):
    model = {"kind": "hf", "architecture": name, "config": config or {}}
    return run(model=model, train=train)


@pytest.mark.parametrize(
    ("name", "train", "message"),
    [
        ("gpt2", {}, "train.recurrence: gpt2 has absolute positions"),
        ("gpt2", {"recurrence": False, "tgt_len": 1025}, "gpt2 has 1024 positions"),
        ("mamba2", {"loss": "half"}, "the state of mamba2 can be carried only from the end"),
        ("llama", {"compile": True}, "train.compile: not for an architecture"),
        ("llama", {"aux_layers": True}, "train.aux_layers: not for an architecture"),
    ],
)
def test_what_an_architecture_cannot_follow_is_refused(name, train, message):
    with pytest.raises(ValueError, match=message):
        of_architecture(name, **train)


def test_an_architecture_is_part_of_the_identity():
    ids = {
        run_id(of_architecture(name, config))
        for name in ("llama", "mamba2")
        for config in ({}, {"hidden_size": 64}, {"hidden_size": 32})
    }
    assert len(ids) == 6
    assert run_id(of_architecture("llama")).startswith("llama-rec-full-s1-")


def test_no_memory_is_no_recurrence_and_then_no_kind_of_memory_differs():
    plain = run(train={"recurrence": False})
    assert run(model={"memory": "none"}) == plain
    assert run(model={"memory": "compressive"}, train={"recurrence": False}) == plain
    assert run(model={"memory": "shift"}) != run()


@pytest.mark.parametrize(
    ("sections", "named"),
    [
        ({"model": {"memory": "sinks"}, "train": {"memory_reset": 0.1}}, "memory_reset"),
        ({"model": {"memory": "compressive"}, "train": {"random_mem_len": True}}, "random_mem_len"),
        ({"model": {"memory": "sinks", "sinks": 64}}, "no room for others"),
        ({"model": {"kind": "lstm"}, "train": {"random_mem_len": True}}, "not lstm"),
        ({"model": {"memory": "shift"}, "evaluate": {"sinks": 2}}, "not with memory shift"),
        ({"model": {"encoding": "rope", "clamp_len": 3}}, "no distances to clamp"),
        ({"evaluate": {"rope_scaling": "pi"}}, "goes with encoding rope"),
        ({"evaluate": {"rope_factor": 2.0}}, r"goes with evaluate\.rope_scaling"),
        ({"model": {"encoding": "rope", "d_head": 1}}, "d_head 1: rope turns pairs"),
        ({"model": {"compress_rate": 2}}, "goes with memory compressive"),
    ],
)
def test_what_a_memory_or_encoding_cannot_follow_is_refused(sections, named):
    with pytest.raises(ValueError, match=named):
        run(**sections)
