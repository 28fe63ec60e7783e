"""`generate` as a user types it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.models.convert.scored import GOLDEN
from txlbench.cli.main import cli
from txlbench.commands.load_model import import_model
from txlbench.records.run_directory import RunDirectory


@pytest.fixture
def model(tmp_path):
    """An imported model of characters."""
    run, converted = import_model(f"hf:{GOLDEN / 'shared'}", tmp_path / "model")
    letters = [chr(ord("a") + number) for number in range(converted.vocabulary_size)]
    RunDirectory(run.path).write_tokens(letters)
    return str(run.path)


def typed(*arguments):
    return CliRunner().invoke(cli, ["generate", *arguments, "--device", "cpu"])


def test_text_on_standard_output_and_how_on_standard_error(model):
    done = typed(model, "--prompt", "abc", "--tokens", "7", "--mem-len", "5", "--top-k", "3")
    assert done.exit_code == 0
    assert done.stdout.startswith("abc")
    assert len(done.stdout.strip("\n")) == 10
    assert done.stderr.startswith("7 tokens, ")
    assert "mem_len 5" in done.stderr


def test_json_has_text_and_ids(model):
    prompt = Path(model) / "prompt.txt"
    prompt.write_text("abc")
    done = typed(model, "--prompt-file", str(prompt), "--tokens", "7", "--format", "json")
    made = json.loads(done.stdout)
    assert len(made["ids"]) == 7
    assert made["text"] == "abc" + "".join(chr(ord("a") + number) for number in made["ids"])


def test_the_likeliest_do_not_depend_on_the_seed(model):
    texts = {
        typed(model, "--prompt", "abc", "--tokens", "7", "--top-k", top_k, "--seed", seed).stdout
        for top_k in ("1", "0")
        for seed in ("1", "2")
    }
    assert len(texts) == 3


def test_a_prompt_is_needed(model):
    done = typed(model)
    assert "one of them is needed" in str(done.exception)


def test_a_page_of_samples_continues_a_file(model, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("abc")
    asked = ("--samples", "1", "--tokens", "2", "--format", "json")
    done = typed(model, *asked, "--prompt-file", str(prompt))
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["samples"][0]["context"] == "abc"
    again = typed(model, *asked, "--prompt", "abc")
    assert json.loads(again.stdout)["samples"] == json.loads(done.stdout)["samples"]
    assert len(list((tmp_path / "results").glob("samples-*"))) == 1
    refused = typed(model, *asked, "--prompt-file", str(tmp_path))
    assert str(refused.exception) == f"{tmp_path}: Is a directory; give a text file"


def test_samples_are_bounded():
    done = typed("any", "--samples", "99999999", "--prompt", "abc")
    assert done.exit_code == 2
    assert "1<=x<=10000" in done.output
