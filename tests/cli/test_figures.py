"""`txlbench figures`, as a user types it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.reporting.laboratory import Laboratory
from txlbench.cli.main import cli
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
    assert len(paths) == 3 + 8 + 3
    assert all(path.stat().st_size > 0 for path in paths)


def test_one_experiment_by_its_directory(laboratory: Laboratory) -> None:
    laboratory.experiment(name="a")
    other = laboratory.experiment(name="b")
    assert figures("results/a")[0] == 0
    assert not other.table("csv").exists()
    assert "txlbench figures results/a" in Path("results/a/table.md").read_text()


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
    assert len(printed.splitlines()) == 3 + 8
    table = directory.table("csv").read_text()
    assert "damaged" in table
    assert table.count("finished") == 2


@pytest.mark.parametrize("where", ["", "nowhere"])
def test_nothing_found(laboratory: Laboratory, where: str) -> None:
    with pytest.raises(UserError, match="no experiment found"):
        figures(*([where] if where else []))
