"""`import`, `eval` and `export` as a user types them."""

import json
import sys

import numpy as np
import pytest

from tests.cli.trial import call
from tests.models.convert.scored import GOLDEN, golden
from txlbench.cli.main import main
from txlbench.config.counting import parameters
from txlbench.errors import ExitStatus
from txlbench.models.convert.hf import read_hf


@pytest.mark.full
def test_in_measured_and_out_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = np.load(GOLDEN / "shared" / "losses.npz")
    np.save("ids.npy", given["tokens"][0])
    status, output, _ = call("import", f"hf:{GOLDEN / 'shared'}", "--out", "results/imported/one")
    assert status == 0
    # The table that embedding and softmax share counts once, as in every table of results.
    model = read_hf(GOLDEN / "shared")
    count = parameters(model.config, model.vocabulary_size)
    assert output == f"results/imported/one: {count:,} parameters, 50 symbols\n"
    arguments = ("--tokens", "ids.npy", "--batch-size", "1", "--tgt-len", str(given["cuts"][0]))
    status, output, errors = call(
        "eval", "results/imported/one", *arguments, "--losses", "out.npz", "--format", "json"
    )
    assert (status, "wrong vocabulary?" in errors) == (0, True)  # random weights know nothing
    np.testing.assert_allclose(np.load("out.npz")["losses"], golden("shared")[0], atol=1e-4)
    (record,) = json.loads(output)
    assert record["tokens"] == len(given["tokens"][0]) - 1
    assert record["measurement"]["same_length"] is True
    status, _, _ = call("export", "results/imported/one", "--to", "hf:folder")
    assert status == 0
    status, again, _ = call("eval", "hf:folder", *arguments, "--format", "json")
    assert (status, json.loads(again)[0]["loss"]) == (0, record["loss"])


def test_force_replaces_an_earlier_import_or_export_and_nothing_else(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("precious")

    def typed(*arguments):
        monkeypatch.setattr(sys, "argv", ["txlbench", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capfd.readouterr().err

    bring, send = ("import", f"hf:{GOLDEN / 'shared'}", "--out"), ("export", "one", "--to")
    for call_ in ((*bring, "one"), (*send, "hf:folder")):
        assert typed(*call_)[0] == 0
        status, errors = typed(*call_)
        assert (status, "exists already" in errors, "--force" in errors) == (2, True, True)
        assert typed(*call_, "--force")[0] == 0
    assert typed("eval", "hf:folder", "--tokens", str(GOLDEN / "gone.npy"))[0] == 2
    for call_ in ((*bring, "other", "--force"), (*send, "hf:other", "--force")):
        status, errors = typed(*call_)
        assert (status, "other: exists already" in errors) == (2, True)
    assert (other / "thesis.txt").read_text() == "precious"
    config = tmp_path / "one" / "config.yaml"
    assert "memory: xl" in config.read_text()
    config.write_text(config.read_text().replace("memory: xl", "memory: sinks"))
    status, errors = typed(*send, "hf:folder", "--force")
    assert (status, "model.memory: sinks" in errors) == (2, True)  # and the earlier one stays
    assert read_hf(tmp_path / "folder").vocabulary_size == 50


@pytest.mark.parametrize(
    "arguments",
    [
        ("import", "somewhere", "--out", "new"),
        ("import", "hf:nowhere", "--out", "new"),
        ("eval", "nothing"),
        ("eval", "hf:nowhere", "--tokens", "ids.npy"),
        ("eval", f"hf:{GOLDEN / 'plain'}"),
        ("eval", f"hf:{GOLDEN / 'plain'}", "--attention-lengths", "4,x"),
        ("export", "nothing", "--to", "hf:folder"),
        ("export", f"hf:{GOLDEN / 'plain'}", "--to", "folder"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, monkeypatch, capfd, arguments):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["txlbench", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    errors = capfd.readouterr().err
    assert ended.value.code == ExitStatus.USAGE
    assert len(errors.splitlines()) == 1, errors
    assert not list(tmp_path.iterdir())
