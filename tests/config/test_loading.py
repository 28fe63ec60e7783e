"""YAML as people write it: numbers, lines, and one clear line for what is not allowed."""

from pathlib import Path
from typing import Any

import pytest

from txlbench.config.loading import dump_yaml, parse_yaml, read_yaml, set_dotted
from txlbench.errors import UserError


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-3", 0.001),
        ("2E5", 200000.0),
        ("-1.5e-4", -0.00015),
        ("1.e+2", 100.0),
        ("0.002", 0.002),
        ("64", 64),
        ("'1e-3'", "1e-3"),
        ("e3", "e3"),
        ("1e", "1e"),
        ("10.0.0.1e5", "10.0.0.1e5"),
        ("null", None),
        ("false", False),
    ],
)
def test_scalars(written: str, value: Any):
    found = parse_yaml(f"key: {written}", "f").value["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f.yaml:3: a: given twice; keep one of them"),
        ("t:\n  lr: 1\n  lr: 1", "f.yaml:3: t.lr: given twice; keep one of them"),
        ("r:\n- {x: 1}\n- {x: 1, x: 2}", "f.yaml:3: r.1.x: given twice; keep one of them"),
        ("a: &x 1\nb: *x", "f.yaml:2: YAML aliases are not allowed; write the value out"),
        ("a:\n  - [1", "f.yaml:2: not YAML: *; mend the syntax"),
        ("a: 1\n---\nb: 2", "f.yaml:2: not YAML: *; mend the syntax"),
        ("a: !!python/object:os.system {}", "f.yaml:1: not YAML: *; mend the syntax"),
        ("a: \x00", "f.yaml: not YAML: *; mend the syntax"),
        ("[" * 600, "f.yaml*not YAML: *; mend the syntax"),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_what_is_not_allowed_is_one_line(text: str, message: str):
    with pytest.raises(UserError) as caught:
        parse_yaml(text, "f.yaml")
    found, (start, *_, end) = str(caught.value), message.split("*") if "*" in message else ("", "")
    assert "\n" not in found
    assert found == message or (start and found.startswith(start) and found.endswith(end))


def test_every_key_knows_its_line():
    document = parse_yaml("a: 1\nb:\n  c: 2\n  d:\n    - e: 3\n    - f: 4\n", "f.yaml")
    assert document.where(("a",)) == "f.yaml:1"
    assert document.where(("b", "c")) == "f.yaml:3"
    assert document.where(("b", "d", 1, "f")) == "f.yaml:6"
    assert document.where(("b", "missing")) == "f.yaml:2"
    assert document.where(("missing",)) == "f.yaml:1"
    assert parse_yaml("", "f.yaml").where(("a",)) == "f.yaml"


@pytest.mark.parametrize(
    "value",
    [
        {"label": "1e-3", "other": "2E5", "b": True, "n": None},
        {"z": 1, "a": [0.1, 1e-7, 5e20, -0.0]},
        {"text": "two\nlines: *x", "unicode": "π", "number": "12", "yes": "yes"},
    ],
    ids=str,
)
def test_what_is_written_is_read_back(value: Any):
    written = dump_yaml(value)
    found = parse_yaml(written, "f").value
    assert found == value
    assert list(found) == list(value)


def test_a_value_used_twice_is_written_twice():
    shared = [1, 2]
    assert parse_yaml(dump_yaml({"a": shared, "b": shared}), "f").value == {
        "a": [1, 2],
        "b": [1, 2],
    }


def test_files_that_cannot_be_read(tmp_path: Path):
    latin = tmp_path / "latin.yaml"
    latin.write_bytes(b"name: caf\xe9")
    for path, problem in (
        (tmp_path / "none.yaml", "no such file"),
        (tmp_path, "Is a directory"),
        (latin, "not UTF-8 text"),
    ):
        with pytest.raises(UserError, match=problem) as caught:
            read_yaml(path)
        assert str(caught.value).startswith(f"{path}: ")


def test_dotted_keys_reach_into_sections():
    target: dict[str, Any] = {"train": {"lr": 1}, "corpus": "wt103"}
    set_dotted(target, "train.lr", 2, "f")
    set_dotted(target, "model.n_head", 3, "f")
    set_dotted(target, "corpus.level", "word", "f")
    assert target == {
        "train": {"lr": 2},
        "model": {"n_head": 3},
        "corpus": {"name": "wt103", "level": "word"},
    }
    with pytest.raises(UserError) as caught:
        set_dotted(target, "train.lr.x", 3, "f.yaml:7")
    assert str(caught.value) == "f.yaml:7: train.lr.x: train.lr is 2, not a section; drop .x"
