"""`txlbench ablate` on a disk that gets full: the exit status tells, and the next call completes.

On a file system of its own, where root or a user's namespace may mount one; elsewhere the run's
files may not grow from some moment on.
"""

import json
import os

import pytest

from tests.cli.trial import ROOT
from tests.disk import on_small_disk
from tests.runs.trial import write_spec, write_text

BIG = {
    "model.d_model": 64,
    "train.max_step": 600,
    "train.eval_interval": 200,
    "train.log_interval": 5,
}


@pytest.mark.full
def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text(tmp_path / "mine.txt")
    write_spec(BIG)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TXLBENCH_DATA": str(tmp_path / "data")}
    env.pop("MLFLOW_TRACKING_URI", None)
    done = on_small_disk(tmp_path / "small", "32m", ("-m", "tests.cli.full_disk"), env=env)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "told.json").read_text())
    status, output, errors = told["first"]
    assert status == 1, errors
    assert told["kind"] == "limit" or "No space left on device" in output + errors
    assert ".pt: " in output or "or the disk of small/trial is full" in output
    assert "Traceback" not in output + errors
    assert told["state"] == "interrupted"
    assert told["remains"] == []
    assert told["second"][0] == 0, told["second"]
    assert told["end"] == "finished"
