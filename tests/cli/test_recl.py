"""`txlbench recl` on loss files, as a user types it."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.cli.trial import call, environment
from tests.commands.loss_files import save
from txlbench.cli.main import cli, main
from txlbench.cli.options import CONTEXTS, SHARES
from txlbench.commands import publish
from txlbench.tracking.backlog import nothing_to_deliver


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(Path("a.npz"), seed=1)
    save(Path("b.npz"), seed=2, reach=200, longest=250, name="B")
    return tmp_path


@pytest.fixture
def typed(monkeypatch, capfd):
    """Calls the entry point in this process: (exit status, output, errors)."""

    monkeypatch.setattr(publish, "deliver_aside", lambda *_: "")

    def type_(*arguments):
        monkeypatch.setattr(sys, "argv", ["txlbench", "recl", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return (end.value.code, *capfd.readouterr())

    return type_


def test_a_group_of_loss_files(typed):
    status, output, errors = typed("--models", "a.npz,b.npz", "--out", "out")
    assert status == 0
    assert errors.startswith("Warning: r = 0.1 is 100 of 1,000 tokens")
    lines = output.splitlines()
    header, _, first, second = lines[lines[0].startswith(" ") :][:4]  # long headers take two lines
    assert header.split()[:3] == ["model", "RECL", "r=0.1"]
    assert first.startswith("a ")
    assert second.startswith("B ")
    paths = [Path(line) for line in output.splitlines() if line.startswith("out/")]
    assert [path.name for path in paths] == [
        *("recl.json", "recl.html", "recl.csv", "recl.md", "recl.tex"),
        *("recl_gain.png", "recl_gain.svg", "recl_loss.png", "recl_loss.svg"),
    ]
    assert all(path.stat().st_size > 0 for path in paths)
    assert "txlbench recl --models a.npz,b.npz --out out" in Path("out/recl.md").read_text()


def test_options_reach_the_metric(typed):
    options = (
        "--contexts",
        "100:300:100",
        "--r",
        "0.07,1",
        "--threshold",
        "0.5",
        "--tokens",
        "900",
    )
    typed("--models", "a.npz", "--models", "b.npz", "--out", "out", "--seed", "3", *options)
    found = json.loads(Path("out/recl.json").read_text())
    assert found["contexts"] == [100, 200, 300]
    assert (found["r"], found["threshold"], found["seed"]) == ([0.07, 1.0], 0.5, 3)
    assert [group["models"] for group in found["groups"]] == [["a"], ["B"]]
    assert found["groups"][0]["tokens"] == 900
    assert {line["recl"] for line in found["groups"][0]["results"]} == {100}


def test_results_go_below_results(typed):
    assert typed("--models", "a.npz")[0] == 0
    place, index = sorted(Path("results").iterdir(), reverse=True)
    assert place.name.startswith("recl-")
    assert f'href="{place.name}/recl.html"' in index.read_text()


BAD = {
    "no models": ((), ["--models"]),
    "an empty name": (("--models", "a.npz,,b.npz"), ["--models 'a.npz,,b.npz'"]),
    "missing file": (("--models", "gone.npz"), ["gone.npz", "no such file"]),
    "foreign file": (("--models", "foreign.npz"), ["foreign.npz", "no 'losses'"]),
    "not an npz": (("--models", "text.npz"), ["text.npz", "not a whole .npz file"]),
    "an eval file": (("--models", "eval.npz"), ["eval.npz", "this is an `eval` file"]),
    "NaN": (("--models", "a.npz,nan.npz"), ["nan.npz ('Vanilla')", "NaN loss at context 200"]),
    "other positions": (("--models", "a.npz,shifted.npz"), ["shifted.npz", "positions differ"]),
    "other split": (("--models", "a.npz,valid.npz"), ["'valid', but 'test'"]),
    "other vocabulary": (("--models", "v.npz,w.npz"), ["w.npz: vocabulary 'w', but 'v'"]),
    "other corpus": (("--models", "v.npz,x.npz"), ["x.npz: corpus"]),
    "lacking contexts": (("--models", "a.npz", "--contexts", "100,150"), ["contexts 150"]),
    "too few tokens": (("--models", "a.npz", "--tokens", "50"), ["too few tokens"]),
    "r of 0": (("--models", "a.npz", "--r", "0,1"), ["--r", "'0,1'"]),
    "r above 1": (("--models", "a.npz", "--r", "10"), ["--r", "'10'"]),
    "r of no number": (("--models", "a.npz", "--r", "half"), ["--r", "'half'"]),
    "NaN as r": (("--models", "a.npz", "--r", "nan"), ["--r", "'nan'"]),
    "threshold of 0": (("--models", "a.npz", "--threshold", "0"), ["--threshold"]),
    "one context": (("--models", "a.npz", "--contexts", "100"), ["--contexts", "2"]),
    "endless contexts": (("--models", "a.npz", "--contexts", "1:9:0"), ["--contexts"]),
    "a billion contexts": (("--models", "a.npz", "--contexts", "1:1000000000:1"), ["--contexts"]),
    "a NaN threshold": (("--models", "a.npz", "--threshold", "nan"), ["--threshold", "nan"]),
    "a corpus of a file": (("--models", "a.npz", "--corpus", "x"), ["--corpus x", "loss files"]),
    "contexts of words": (("--models", "a.npz", "--contexts", "a:b:c"), ["FIRST:LAST:STEP"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_gets_one_line_and_leaves_nothing_behind(typed, folder, name):
    np.savez("foreign.npz", weights=np.ones(3))
    np.savez("eval.npz", losses=np.ones(3), positions=np.arange(3))
    Path("text.npz").write_text("hello")
    bad = np.ones((4, 1000))
    bad[1, 5] = np.nan
    save(Path("nan.npz"), losses=bad, name="Vanilla")
    save(Path("shifted.npz"), positions=500 + np.arange(1000))
    save(Path("valid.npz"), split="valid")
    save(Path("v.npz"), vocabulary="v", corpus="c")
    save(Path("w.npz"), vocabulary="w", corpus="c")
    save(Path("x.npz"), vocabulary="v", corpus="x")
    before = sorted(folder.rglob("*"))
    arguments, parts = BAD[name]
    status, output, errors = typed(*arguments)
    assert (status, output) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith("Error: ")
    assert all(part in line for part in parts), line
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("16:64:16", (16, 32, 48, 64)),
        ("100:1000:100", tuple(range(100, 1001, 100))),
        ("16:60:16", (16, 32, 48)),
        ("64,16,32,16", (16, 32, 64)),
    ],
)
def test_contexts_may_be_a_list_or_a_range_that_includes_its_end(text, expected):
    assert CONTEXTS.convert(text, None, None) == expected


def test_shares_keep_their_order_and_come_once():
    assert SHARES.convert("1.0, 0.1,1", None, None) == (1.0, 0.1)


def test_loss_files_need_neither_torch_nor_mlflow():
    command = [sys.executable, "-X", "importtime", "-m", "txlbench.cli.main"]
    command += ["recl", "--models", "a.npz,b.npz"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert {"numpy", "matplotlib"} <= loaded
    assert not loaded & {"torch", "mlflow", "pandas", "ray"}


@pytest.mark.full
def test_as_a_process():
    status, output, _ = call("recl", "--models", "a.npz")
    assert status == 0
    assert "recl.json" in output
    finding = next(Path("results").glob("recl-*/recl.json"))
    end = time.monotonic() + 60
    while not nothing_to_deliver(finding):  # the delivery goes on when the call has ended
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_server_that_does_not_answer_is_a_warning():
    env = environment(MLFLOW_TRACKING_URI="http://127.0.0.1:9")
    status, output, errors = call("recl", "--models", "a.npz", env=env)
    assert status == 0
    assert "recl.json" in output
    assert "MLflow lacks it (" in errors


def test_help_names_every_option():
    found = CliRunner().invoke(cli, ["recl", "--help"])
    names = "models contexts r threshold tokens corpus split device batch-size attention-length"
    assert all(
        f"--{name}" in found.output for name in [*names.split(), "checkpoint", "out", "seed"]
    )


def test_a_place_that_is_a_file(typed):
    Path("taken").write_text("a file")
    status, _, errors = typed("--models", "a.npz", "--out", "taken/below")
    assert status == 2
    assert "taken" in errors.splitlines()[-1]
