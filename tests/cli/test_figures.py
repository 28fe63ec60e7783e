"""`txlbench figures`, as a user types it."""

import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.commands.loss_files import save
from tests.reporting.laboratory import Laboratory
from tests.reporting.recl_records import write_record
from txlbench.cli.main import cli
from txlbench.commands import publish
from txlbench.errors import UserError


@pytest.fixture
def laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    monkeypatch.chdir(tmp_path)
    return Laboratory(Path("results"))


def figures(*arguments: str) -> tuple[int, str, str]:
    """Exit status as `main` would give it, and what was printed."""
    found = CliRunner().invoke(cli, ["figures", *arguments], standalone_mode=False)
    if found.exception is not None:
        raise found.exception
    return found.return_value, found.stdout, found.stderr


def test_all_of_results_without_arguments(laboratory: Laboratory) -> None:
    laboratory.finished(name="a", seeds=[1])
    laboratory.experiment(name="b")  # never run: tables only
    status, printed, _ = figures()
    assert status == 0
    paths = [Path(line) for line in printed.split("\n") if line]
    assert len(paths) == 1 + 4 + 8 + 1 + 4
    assert all(path.stat().st_size > 0 for path in paths)


def test_one_experiment_by_its_directory(laboratory: Laboratory) -> None:
    laboratory.experiment(name="a")
    other = laboratory.experiment(name="b")
    assert figures("results/a")[0] == 0
    assert not other.table("csv").exists()
    assert "txlbench figures results/a" in Path("results/a/table.md").read_text()


def test_numbers_are_not_replaced_where_the_runs_are_gone(laboratory: Laboratory) -> None:
    directory = laboratory.finished(name="a", seeds=[1])
    figures()
    shutil.rmtree(directory.runs_directory)
    before = {path: path.read_bytes() for path in directory.path.rglob("*") if path.is_file()}
    for verb in ("figures", "report"):
        found = CliRunner().invoke(cli, [verb, "a"], standalone_mode=False)
        assert found.return_value == 1
        assert found.stderr == (
            "results/a: not rebuilt: results/a/runs: no run of results/a/spec.yaml is there, while "
            "results/a/table.json has numbers; restore the runs, or delete results/a/table.json\n"
        )
    assert before == {p: p.read_bytes() for p in directory.path.rglob("*") if p.is_file()}
    directory.table("json").unlink()
    assert figures()[0] == 0


def test_figures_for_a_paper(laboratory: Laboratory) -> None:
    laboratory.finished(name="a", seeds=[1])
    status, printed, _ = figures("--format", "pdf", "--width", "single", "--no-title")
    drawn = [Path(line) for line in printed.split("\n") if "figures" in line]
    assert status == 0
    assert len(drawn) == 4
    assert all(path.read_bytes().startswith(b"%PDF") for path in drawn)
    assert b"/MediaBox [ 0 0 237.6 " in drawn[0].read_bytes()


@pytest.mark.parametrize("width", ["1", "triple", "nan", "99"])
def test_a_width_that_cannot_be(laboratory: Laboratory, width: str) -> None:
    with pytest.raises(click.UsageError, match="single"):
        figures("--width", width)


def test_a_broken_experiment_does_not_stop_the_others(laboratory: Laboratory) -> None:
    broken = laboratory.experiment(name="a")
    whole = laboratory.experiment(name="b")
    broken.spec_file.write_text("name: [")
    status, _, complaint = figures()
    assert status == 1
    assert whole.table("csv").exists()
    assert complaint.count("\n") == 1
    assert complaint.startswith("results/a: not rebuilt: results/a/spec.yaml:1: not YAML")


@pytest.mark.parametrize("name", ["summary.json", "metrics.jsonl", "status.json"])
def test_a_broken_run_is_named_and_shown_as_such(laboratory: Laboratory, name: str) -> None:
    directory = laboratory.finished(seeds=[1])
    (laboratory.runs(directory)[0][2].path / name).write_text("{\n")
    status, printed, complaint = figures()
    assert status == 1
    assert complaint.startswith("results/small: a run left out: ")
    assert complaint.count("\n") == 1
    assert name in complaint
    assert len(printed.splitlines()) == 1 + 4 + 8
    table = directory.table("csv").read_text()
    assert "damaged" in table
    assert table.count("finished") == 2


def test_results_of_recl_too(laboratory: Laboratory) -> None:
    write_record(Path("results/recl-1"))
    laboratory.experiment(name="a")
    status, printed, _ = figures()
    assert status == 0
    assert {path.name for path in Path("results/recl-1").iterdir()} >= {"recl.md", "figures"}
    assert "results/recl-1/figures/recl_loss.png" in printed
    page = Path("results/recl-1/recl.md").read_text()
    assert "command: txlbench recl --models XL.npz; then txlbench figures" in page
    assert figures("results/recl-1")[1].startswith("results/recl-1/recl.html")


def test_a_broken_finding_is_named(laboratory: Laboratory) -> None:
    whole = laboratory.experiment(name="a")
    Path("results/recl-1").mkdir()
    Path("results/recl-1/recl.json").write_text("[]")
    status, _, complaint = figures()
    assert status == 1
    assert whole.table("csv").exists()
    assert complaint.startswith("results/recl-1/recl.json: not rebuilt: ")


@pytest.mark.parametrize("where", ["", "nowhere"])
def test_nothing_found(laboratory: Laboratory, where: str) -> None:
    with pytest.raises(UserError, match="no result found"):
        figures(*([where] if where else []))


DRAWING = ("ablate", "attention", "bench", "context", "figures", "merge", "probe", "recl", "speed")


@pytest.mark.parametrize("name", [*DRAWING, "truth"])
def test_a_verb_that_draws_takes_the_width_of_a_column(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    (option,) = [each for each in command.params if "--width" in each.opts]
    with click.Context(command) as context:
        found = option.process_value(context, "SINGLE")
        assert option.make_metavar(context) == "INCHES|single|double"
        usual = option.process_value(context, None)
    assert getattr(found, "width", found) == 3.3
    assert usual in (None, 7.2)


def test_a_finding_is_drawn_as_wide_as_asked(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish, "deliver_aside", lambda *_: "")
    save(Path("a.npz"))
    words = ["recl", "--models", "a.npz", "--out", str(laboratory.folder / "a"), "--width"]
    for width, points in (("single", 3.3 * 72), ("double", 6.8 * 72)):
        done = CliRunner().invoke(cli, [*words, width], catch_exceptions=False)
        assert done.exit_code == 0
        text = laboratory.folder.joinpath("a/figures/recl_gain.svg").read_text()
        assert f'width="{points:g}pt"' in text
