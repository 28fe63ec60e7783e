"""`txlbench report`, as a user types it."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.reporting.laboratory import Laboratory
from tests.reporting.speed_records import write_record
from txlbench.cli.main import cli
from txlbench.errors import UserError


@pytest.fixture
def laboratory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Laboratory(Path("results"))


def report(*arguments):
    """Exit status as `main` would give it, and what was printed."""
    found = CliRunner().invoke(cli, ["report", *arguments], standalone_mode=False)
    if found.exception is not None:
        raise found.exception
    return found.return_value, found.stdout.split("\n")[:-1], found.stderr


def make_speed():
    Path("results/speed-1").mkdir(parents=True)
    write_record(Path("results/speed-1"))


def test_a_page_of_each_result_and_an_index(laboratory):
    laboratory.experiment(name="a")
    make_speed()
    assert report() == (
        0,
        ["results/speed-1/speed.html", "results/a/report.html", "results/index.html"],
        "",
    )
    index = Path("results/index.html").read_text()
    assert "XL: 800 ms a token at 1,800 keys." in index
    assert "Loss: Nothing was measured yet in bits per character." in index
    assert "then txlbench report" in Path("results/speed-1/speed.html").read_text()
    assert not Path("results/a/table.md").exists(), "pages only"


def test_published_results_get_pages_and_an_index(laboratory):
    laboratory.finished(name="a")
    make_speed()
    status, paths, _ = report("--publish", "published")
    assert status == 0
    assert {"published/speed-1/speed.html", "published/a/report.html"} < set(paths)
    assert paths[-1] == "published/index.html"
    assert "a/report.html" in Path("published/index.html").read_text()
    assert not Path("results/a/report.html").exists()


def test_a_single_result_gets_its_page_alone(laboratory):
    laboratory.experiment(name="a")
    make_speed()
    assert report("speed-1")[:2] == (0, ["results/speed-1/speed.html"])


def test_what_is_broken_is_named_and_the_others_are_made(laboratory):
    laboratory.experiment(name="a").spec_file.write_text("name: [")
    make_speed()
    status, paths, complaint = report()
    assert status == 1
    assert paths == ["results/speed-1/speed.html", "results/index.html"]
    assert complaint.startswith("results/a: not rebuilt: results/a/spec.yaml:1: not YAML")
    assert complaint.count("\n") == 1


def test_nothing_found(laboratory):
    with pytest.raises(UserError, match="no result found"):
        report()


def test_no_option_is_taken_for_a_directory(laboratory):
    with pytest.raises(click.UsageError, match="No such option"):
        report("--html")
