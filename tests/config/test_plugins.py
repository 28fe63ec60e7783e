"""Plug-ins: known by name once loaded, by the command line or installed, and by source in ids."""

import sys

import pytest

from tests.config.experiments import run
from tests.plugged import forgotten, written
from txlbench.config.catalogue import CORPORA, ENCODINGS, EncodingEntry
from txlbench.config.counting import parameters
from txlbench.config.identity import run_id
from txlbench.config.kinds import KINDS
from txlbench.config.model import ModelConfig
from txlbench.config.plugins import load_files, load_plugin, read_plugin
from txlbench.config.run_config import RunConfig
from txlbench.errors import UserError

ENCODING = """
import torch
from torch import nn
from txlbench.config.catalogue import EncodingEntry, register_encoding
from txlbench.models.positions.encoding import Encoding

class Nothing(Encoding):
    def __init__(self, config):
        super().__init__(config)
        self.unused = nn.Parameter(torch.empty(7))

register_encoding("nothing", EncodingEntry(Nothing, exactness="distance"))
"""
KIND = """
from txlbench.config.kinds import KindEntry, register_kind
from txlbench.models.transformer import Transformer

class Mine(Transformer): pass

register_kind("mine", KindEntry(Mine, encodes=True))
"""


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch):
    for catalogue in (ENCODINGS, KINDS, CORPORA):
        monkeypatch.setattr(catalogue, "group", f"{catalogue.group}.test")
    with forgotten():
        yield


def test_its_source_is_recorded_and_part_of_the_identity(tmp_path):
    path = written(tmp_path, ENCODING)
    load_files([path])
    config = run(model={"encoding": "nothing"})
    assert config.model.plugin == read_plugin(path).sha256
    assert run_id(config).startswith("nothing-rec-full-s1-")
    load_files([written(tmp_path, ENCODING + "# changed\n")])
    assert run_id(run(model={"encoding": "nothing"})) != run_id(config)
    with pytest.raises(ValueError, match="was a plug-in with source"):
        RunConfig.model_validate(config.model_dump())


def test_configurations_without_plugins_keep_their_ids(tmp_path):
    before = run_id(run(model={"encoding": "shaw"}))
    load_files([written(tmp_path, ENCODING)])
    assert run_id(run(model={"encoding": "shaw"})) == before
    assert run(model={"encoding": "shaw"}).model.plugin is None


def test_it_is_executed_once(tmp_path):
    plugin = read_plugin(written(tmp_path, ENCODING))
    assert load_plugin(plugin) is load_plugin(plugin)


def test_parameters_are_those_of_the_built_model(tmp_path):
    load_files([written(tmp_path, ENCODING), written(tmp_path, KIND, "kind.py")])
    sizes = {"n_layer": 2, "d_model": 16, "n_head": 2}
    plain = parameters(ModelConfig(encoding="none", **sizes), 19)
    assert parameters(ModelConfig(encoding="nothing", **sizes), 19) == plain + 7
    mine = ModelConfig(kind="mine", encoding="none", config={"own": 1}, **sizes)
    assert parameters(mine, 19) == plain
    assert (mine.name, mine.config) == ("mine-none", {"own": 1})
    both = ModelConfig(kind="mine", encoding="nothing", **sizes)
    assert both.plugin == f"{mine.plugin}+{ENCODINGS['nothing'].source}"
    assert parameters(both, 19) == plain + 7


def test_without_the_file_its_name_is_unknown_with_the_remedy():
    for key in ("encoding", "kind"):
        with pytest.raises(ValueError, match=r"unknown .* or give --plugin"):
            run(model={key: "nothing"})
    with pytest.raises(ValueError, match=r"unknown corpus .* or give --plugin"):
        run(corpus="nothing-of-the-kind")


BROKEN = {
    "def broken(:": r"mine\.py:1: SyntaxError",
    "\n\nraise RuntimeError('no')": r"mine\.py:3: RuntimeError: no; mend the plug-in",
    "x = 1": "registers nothing; end it in register_encoding",
    ENCODING.replace('"nothing"', '"xl"'): "encoding 'xl' is already registered",
    ENCODING.replace('"nothing"', '"../up"'): r"mine\.py: encoding '\.\./up': not a name",
    ENCODING.replace('"nothing"', '""'): "encoding '': not a name",
    ENCODING.replace('"nothing"', '"a\\n"'): "not a name",
    KIND.replace('"mine"', '"a b"'): "kind of model 'a b': not a name",
    ENCODING.replace('="distance"', '="guess"'): "exactness: 'guess' found; use distance, visible",
    ENCODING.replace("EncodingEntry(Nothing, exactness=", "dict(a="): "'nothing': dict found",
    ENCODING.replace("Entry(Nothing", "Entry(None"): "'nothing': target: None found",
    "\nimport sys\nsys.exit(0)": r"mine\.py:3: SystemExit: 0; mend the plug-in",
}


def test_a_byte_order_mark_is_no_part_of_the_source(tmp_path):
    plain = read_plugin(written(tmp_path, ENCODING))
    marked = tmp_path / "marked.py"
    marked.write_text(ENCODING, encoding="utf-8-sig")
    assert read_plugin(marked).text == plain.text
    load_files([marked])


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (ENCODING.replace("__init__(config)", "__init__(gone)"), "Nothing: NameError"),
        (ENCODING.replace("Entry(Nothing", "Entry(int"), "int: TypeError"),
        (ENCODING.replace("Entry(Nothing", "Entry(list"), "list: TypeError: not a subclass"),
        (ENCODING.replace("Entry(Nothing", "Entry('gone:X'"), "gone:X: ModuleNotFoundError"),
        (KIND.replace("Entry(Mine", "Entry(int"), "int: TypeError"),
    ],
)
def test_a_class_that_cannot_be_made_is_named_with_its_file(text, key, tmp_path):
    load_files([written(tmp_path, text)])
    model = {"kind": "mine"} if "register_kind" in text else {"encoding": "nothing"}
    with pytest.raises(UserError, match=rf"mine\.py(:\d+)?: {key}.*; mend the plug-in"):
        parameters(ModelConfig(**model), 19)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("options=('gone',)", "AttributeError: .* no attribute 'gone'"),
        ("default_max_distance=lambda *_: 1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_an_entry_that_fails_is_named_with_its_file(more, why, tmp_path):
    load_files([written(tmp_path, ENCODING.replace('exactness="distance"', more))])
    with pytest.raises(UserError, match=rf"mine\.py(:\d+)?: encoding nothing: {why}"):
        run(model={"encoding": "nothing"})


@pytest.mark.parametrize("text", BROKEN, ids=list(BROKEN.values()))
def test_a_broken_file_is_refused_with_its_line(text, tmp_path):
    with pytest.raises(UserError, match=BROKEN[text]):
        load_files([written(tmp_path, text)])


def test_what_is_no_python_file_is_refused(tmp_path):
    for path in (tmp_path / "gone.py", written(tmp_path, ENCODING, "mine.txt"), tmp_path / "a.py"):
        if path.name == "a.py":
            path.write_bytes(b"\xff\xfe")
        with pytest.raises(UserError, match="--plugin"):
            load_files([path])


def test_an_installed_package_is_known_by_its_entry_point(tmp_path, monkeypatch):
    """A real distribution on the path; imported when its name is asked for, not before."""
    module = ENCODING.replace('register_encoding("nothing", ', "ENTRY = (").replace(
        ", register_encoding", ""
    )
    written(tmp_path, module, "installed_encoding.py")
    info = tmp_path / "installed_encoding-1.0.dist-info"
    info.mkdir()
    written(info, "Metadata-Version: 2.1\nName: installed-encoding\nVersion: 1.0\n", "METADATA")
    named = {"from-package": "installed_encoding:ENTRY", "bad": "gone:ENTRY", "wrong": "json:dumps"}
    points = [f"[{ENCODINGS.group}]", *(f"{name} = {place}" for name, place in named.items())]
    written(info, "\n".join(points), "entry_points.txt")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "xl" in ENCODINGS
    assert "installed_encoding" not in sys.modules
    config = run(model={"encoding": "from-package"})
    assert isinstance(ENCODINGS["from-package"], EncodingEntry)
    assert config.model.plugin == read_plugin(tmp_path / "installed_encoding.py").sha256
    for name, why in {
        "bad": "ModuleNotFoundError",
        "wrong": "function found; name a Encod",
    }.items():
        with pytest.raises(UserError, match=f"entry point '{name}' of .*{why}"):
            run(model={"encoding": name})
