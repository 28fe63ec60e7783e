"""The JSON Schema of experiment files takes what is shipped, and refuses what a reader would."""

import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from txlbench.config.file_schema import SOURCES, experiment_schema
from txlbench.config.grid import documented_keys
from txlbench.config.loading import parse_yaml, read_yaml

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "experiments").glob("*.yaml"))
SHOWN = [
    text
    for page in (ROOT / "docs").glob("*.md")
    for text in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    if re.search(r"^name:", text, re.MULTILINE)
]
VALIDATOR = Draft202012Validator(experiment_schema())


def faults(text: str) -> list[str]:
    """Where a file is refused, as dotted keys."""
    value = parse_yaml(text, "x.yaml").value
    return [".".join(map(str, each.absolute_path)) for each in VALIDATOR.iter_errors(value)]


def test_the_schema_itself_is_one():
    Draft202012Validator.check_schema(experiment_schema())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_what_is_shipped_fits(path):
    assert [each.message for each in VALIDATOR.iter_errors(read_yaml(path).value)] == []


def test_what_the_pages_show_fits():
    assert SHOWN
    assert [faults(text) for text in SHOWN] == [[] for _ in SHOWN]


BASE = "name: a\ncorpus: enwiki-sample\n"


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("corpus: enwiki-sample\n", ""),
        (BASE + "train: {learning_rate: 1}\n", "train"),
        (BASE + "train: {lr: -1}\n", "train.lr"),
        (BASE + "train: {loss: most}\n", "train.loss"),
        (BASE + "model: {n_layer: 2.5}\n", "model.n_layer"),
        (BASE + "grid: {train.lr: 0.1}\n", "grid.train.lr"),
        (BASE + "grid: {lr: [0.1]}\n", "grid"),
        (BASE + "exclude: [{}]\n", "exclude.0"),
        (BASE + "tune: {lr: [0.1, 0.2]}\n", "tune"),
        (BASE + "rows: [{set: {model.layers: 2}}]\n", "rows.0.set"),
        (BASE + "rows: [{label: a, settings: {}}]\n", "rows.0"),
    ],
)
def test_what_a_reader_refuses_is_refused(text, where):
    assert faults(text) == [where]


def test_an_architecture_takes_keys_of_its_own():
    row = "rows: [{set: {model.kind: hf, model.architecture: llama, model.config.rope_theta: 5}}]\n"
    assert faults(BASE + row) == []


def test_every_key_says_what_it_means_and_where_it_comes_from():
    keys = {each.name: each for each in documented_keys()}
    assert not SOURCES.keys() - keys.keys()
    schema = experiment_schema()["properties"]
    for name, each in keys.items():
        section, _, key = name.partition(".")
        if section == "rows" and key:
            found = schema["rows"]["items"]["properties"][key]
        elif section == "corpus":
            found = schema["corpus"]["anyOf"][1]["properties"][key]
        else:
            found = schema[section]["properties"][key] if key else schema[section]
        assert found["description"].startswith(each.meaning)
