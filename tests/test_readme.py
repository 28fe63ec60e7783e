"""What README, docs/ and --help show can be run as it stands there."""

import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import click
import numpy as np
import pytest

from tests import workplace
from tests.benchmarks import paper_scale
from tests.plugged import forgotten
from txlbench.cli.main import COMMANDS, cli, main
from txlbench.records.loss_file import read_loss_file

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)

PARSED_ONLY = re.compile(
    "bench|truth|check|figures$|data (prepare|show|export) (en|wt|lm|ptb)|import (torch|tf):|"
    "speed experiments/table|merge results|models prepare"
)
"""Commands that take minutes, need what no test has, or repeat another: only parsed by click."""


def blocks(page, language):
    return [text for kind, text in FENCED.findall(page.read_text()) if kind == language]


def templates():
    """(file name, text) of the Python files that pages show."""
    for block in (block for page in PAGES for block in blocks(page, "python")):
        if name := re.match(r"# (\S+\.py)\n", block):
            yield name[1], block


def commands_of(page):
    """The command lines of a page's blocks, without prompts and comments."""
    for block in blocks(page, ""):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith(("txlbench ", "make ", "python -m ", "mlflow ")):
                yield line


def verbs():
    """(words, command) of every verb and of every verb below `data`."""
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        yield (name,), command
        for below, each in getattr(command, "commands", {}).items():
            yield (name, below), each


VERBS = dict(verbs())
FIRST, *OTHERS = [
    [shlex.join(shlex.split(line, comments=True)) for line in commands_of(page)] for page in PAGES
]
OTHERS.append([line for command in VERBS.values() for line in command.examples])
SHOWN = dict.fromkeys([*FIRST, *(line for lines in OTHERS for line in lines)])
"""Every command line once, those of the front page first."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("shown")
        patch.chdir(place)
        patch.setenv("TXLBENCH_DATA", str(tmp_path_factory.mktemp("data")))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        workplace.make(place)
        for block in (block for page in PAGES for block in blocks(page, "yaml")):
            if name := re.match(r"# (\S+\.yaml)\n", block):
                (place / name[1]).write_text(block)
        for name, block in templates():
            (place / name).write_text(block)
        assert run(["txlbench", "export", "quick/Transformer-XL", "--to", "hf:exported"]) == 0
        assert run(["txlbench", "import", "hf:exported", "--out", "results/imported/again"]) == 0
        with forgotten():
            yield place


def run(words):
    """Calls the entry point in this process; the exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as end:
            main()
    return end.value.code


def parse(words):
    """Lets click read the words, and calls nothing."""
    with cli.make_context("txlbench", list(words), resilient_parsing=False) as context:
        name, command, rest = cli.resolve_command(context, list(words))
        if isinstance(command, click.Group):
            name, command, rest = command.resolve_command(context, rest)
        command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("line", SHOWN)
def test_a_command_that_is_shown_is_understood(line, folder):
    program, *words = shlex.split(line)
    if program == "txlbench":
        parse(words)


@pytest.mark.parametrize(
    "line",
    [pytest.param(line, marks=[] if line in FIRST else pytest.mark.full) for line in SHOWN],
)
def test_a_command_that_is_shown_can_be_run(line, folder):
    program, *words = shlex.split(line)
    if program == "make":
        assert re.search(rf"^{words[0]}:.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif program == "python":
        assert find_spec(words[1]) is not None
    elif PARSED_ONLY.match(" ".join(words)):
        parse(words)
    elif words[0] == "ablate" and "--dry-run" not in words:
        assert run([program, *words, "--dry-run"]) == 0
    else:
        if words[0] in ("export", "import"):
            shutil.rmtree(words[-1].removeprefix("hf:"), ignore_errors=True)
        assert run([program, *words]) == 0


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_the_help_of_a_verb_has_full_sentences_and_ends_in_examples(words, capsys):
    assert run(["txlbench", *words, "--help"]) == 0
    command = VERBS[words]
    _, _, examples = capsys.readouterr().out.partition("\nExamples:\n")
    assert [line.strip() for line in examples.splitlines()] == list(command.examples)
    assert len(command.examples) in ((1, 2, 3) if len(words) > 1 else (2, 3))
    assert all(line.startswith(f"txlbench {' '.join(words)}") for line in command.examples)
    for option in (each for each in command.params if isinstance(each, click.Option)):
        text = (option.help or "").partition("  [default")[0]
        assert text.endswith("."), option.name
        assert not text.startswith(("Of ", "To ", "As ")), option.name


def test_its_loss_file_is_one(tmp_path, monkeypatch):
    """The ten lines with which any program writes one."""
    monkeypatch.chdir(tmp_path)
    (block,) = [block for page in PAGES for block in blocks(page, "python") if "np.savez" in block]
    tokens = np.random.default_rng(1).integers(50, size=3000)
    exec(block, {"tokens": tokens, "my_model_loss": lambda before, token: len(before) / 1000})
    found = read_loss_file(Path("mine.npz"))
    assert found.losses[:, 0].tolist() == [np.float32(c / 1000) for c in (100, 200, 300)]
    assert (found.name, found.split, len(found.positions)) == ("mine", "test", 2000)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if "import txlbench" in page.read_text()],
    ids=lambda page: page.name,
)
def test_the_python_of_a_page_runs(page, folder, capsys):
    """All blocks of a page in order, as a notebook would run them."""
    names = {}
    for block in blocks(page, "python"):
        exec(block, names)
    shown = capsys.readouterr().out
    assert "Transformer-XL" in shown
    assert "did you mean" in shown


def test_the_front_page_is_short_and_its_links_lead_somewhere():
    assert len(PAGES[0].read_text().splitlines()) <= 150
    assert len(PAGES) >= 8
    for page in PAGES:
        for link in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_table_of_the_paper_s_models_is_what_the_dry_run_tells(tmp_path, monkeypatch):
    """Where no corpus is prepared, whose splits would count."""
    monkeypatch.setenv("TXLBENCH_DATA", str(tmp_path))
    text = (ROOT / "docs/reproduce.md").read_text()
    for lines in (paper_scale.lines(), paper_scale.scale_lines()):
        expected = "\n".join(lines)
        assert expected in text, "paste what `python -m tests.benchmarks.paper_scale` prints"


def test_the_package_map_is_the_tree():
    """Every room of the package, and nothing that is not there."""
    _, _, below = PAGES[0].read_text().partition("| package | holds |")
    names = re.findall(r"`(\w+)/?`", " ".join(re.findall(r"^\| (`.*?) \|", below, re.MULTILINE)))
    rooms = {path.stem for path in (ROOT / "txlbench").iterdir() if path.stem[0] != "_"}
    assert set(names) == rooms


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page):
    for name in re.findall(r"`((?:txlbench|tests|experiments)/[\w/.-]+\.\w+)`", page.read_text()):
        assert (ROOT / name).exists(), f"{page.name}: {name}"
