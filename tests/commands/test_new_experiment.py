"""The file to start from: it expands, survives a round trip and says what `schema` says."""

import pytest
import yaml

from txlbench.commands.check import check_experiments
from txlbench.commands.new_experiment import SECTIONS, new_experiment
from txlbench.config.grid import expand, load_experiment
from txlbench.config.loading import dump_yaml, parse_yaml
from txlbench.errors import UserError


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my text: 1.txt").write_text("some words of mine\n" * 50)
    return tmp_path


def test_it_expands_and_survives_a_round_trip():
    path = new_experiment("mine")
    assert str(path) == "mine.yaml"
    experiment = load_experiment(path)
    assert experiment.name == "mine"
    assert [line.label for line in experiment.lines] == [
        "recurrence=true",
        "recurrence=false",
        "Shaw's encoding",
    ]
    again = expand(parse_yaml(dump_yaml(experiment.raw), "again.yaml"))
    assert again.runs() == experiment.runs()
    assert all(len(line) <= 100 for line in path.read_text().splitlines())


def test_what_is_commented_out_can_be_taken_in():
    path = new_experiment("folder/mine.yaml")
    text = path.read_text()
    for line in ("exclude:", "  - {train.recurrence", "    paper", "    note"):
        indent = len(line) - len(line.lstrip()) if not line.startswith("  -") else 0
        assert f"{' ' * indent}# {line[indent:]}" in text
        text = text.replace(f"{' ' * indent}# {line[indent:]}", line)
    path.write_text(text)
    assert [line.label for line in load_experiment(path).lines] == [
        "recurrence=true",
        "Shaw's encoding",
    ]


def test_a_text_of_ones_own_with_any_name():
    raw = yaml.safe_load(new_experiment("mine", "my text: 1.txt", "word").read_text())
    assert raw["corpus"] == {"name": "my text: 1.txt", "level": "word"}
    corpus = load_experiment(new_experiment("other", "my text: 1.txt")).lines[0].configs[0].corpus
    assert corpus.path == "my text: 1.txt"
    assert {name: raw[name] for name in SECTIONS} == SECTIONS


@pytest.mark.parametrize(
    ("name", "corpus", "said"),
    [
        ("mine", "enwiki-sampel", "unknown corpus 'enwiki-sampel'"),
        ("a b", "enwiki-sample", "name: 'a b' found; a name has letters"),
        ("../x", "enwiki-sample", "^name: '../x' found; a name has letters"),
        ("a/b", "enwiki-sample", "^name: 'a/b' found"),
        ("", "enwiki-sample", "^name: '' found"),
        ("a\n", "enwiki-sample", "^name: 'a.n' found"),
        ("folder/a b.yaml", "enwiki-sample", "^name: 'a b' found"),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_written(folder, name, corpus, said):
    with pytest.raises(UserError, match=said):
        new_experiment(name, corpus)
    assert not list(folder.glob("*.yaml"))


def test_an_existing_file_is_kept():
    path = new_experiment("mine")
    path.write_text("precious")
    with pytest.raises(UserError, match="--force"):
        new_experiment("mine")
    with pytest.raises(UserError, match=r"mine\.yaml: does not begin as"):
        new_experiment("mine", force=True)
    assert path.read_text() == "precious"


def test_a_file_that_the_verb_wrote_is_replaced():
    path = new_experiment("mine")
    written = path.read_text()
    path.write_text(written + "# changed\n")
    new_experiment("mine", force=True)
    assert path.read_text() == written


@pytest.mark.full
def test_its_models_keep_every_invariant():
    assert not any(found.broken for found in check_experiments([new_experiment("mine")]))


def test_an_empty_text_is_refused(folder):
    (folder / "empty.txt").touch()
    for corpus in ("empty.txt", "my text: 1.txt"):
        (folder / "my text: 1.txt").write_text("")
        with pytest.raises(UserError, match=f"{corpus}: empty; give a text"):
            new_experiment("mine", corpus)
    assert not (folder / "mine.yaml").exists()
