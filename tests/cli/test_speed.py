"""`speed` as a user types it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.runs.trial import write_spec
from txlbench.cli.main import cli


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_spec(corpus="enwik8-official")


def typed(*arguments):
    return CliRunner().invoke(cli, ["speed", *arguments, "--device", "cpu"])


def test_a_table_and_the_paths_of_what_was_written():
    asked = ("--attention-lengths", "8,16", "--tgt-lens", "4", "--rounds", "2", "--out", "out")
    done = typed("spec.yaml", *asked)
    assert done.exit_code == 0, done.output
    assert "sliding window" in done.stdout
    assert "faster, 16 keys" in done.stdout
    for name in ("speed.json", "speed.csv", "speed.tex", "figures/speed.png"):
        assert f"out/{name}" in done.stdout
        assert (Path("out") / name).is_file()


@pytest.mark.parametrize("lengths", ["8,x", "0", ""])
def test_lengths_are_whole_numbers(lengths):
    assert typed("spec.yaml", "--attention-lengths", lengths).exit_code == 2
