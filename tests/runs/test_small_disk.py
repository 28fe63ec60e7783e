"""A disk that is full or read-only: training goes on, nothing is torn, and the end says so."""

import json
import os
from pathlib import Path

import pytest

from tests.disk import on_small_disk
from tests.runs.trial import write_spec

ROOT = Path(__file__).parents[2]
REFUSALS = ("No space left on device", "Read-only file system", "File too large")


def told(folder, way, scenario):
    """What happened on a disk of a few megabytes."""
    write_spec()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    code = ("-m", "tests.runs.small_disk")
    done = on_small_disk(folder / "small", "4m", code, way, scenario, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "told.json").read_text())


def check_same(found):
    """Everything arrived in the end."""
    assert found["end"] == "finished"
    assert found["same lines"]
    assert found["same last.pt"]
    assert found["same best.pt"]
    assert found["timings"] == [3, 6, 9, 12]


@pytest.mark.full
@pytest.mark.parametrize(
    "way", [pytest.param("full", marks=pytest.mark.full), "read-only"], ids=str
)
def test_training_goes_on_and_late_files_are_written_when_there_is_room(folder, way):
    found = told(folder, way, "for a while")
    check_same(found)
    (note,) = found["notes"]
    assert "tried again at the next checkpoint" in note
    assert ".pt: " in note
    assert any(refusal in note for refusal in REFUSALS)


@pytest.mark.full
@pytest.mark.parametrize(
    "way", ["full", pytest.param("read-only", marks=pytest.mark.full)], ids=str
)
def test_a_run_that_could_not_be_written_is_interrupted_and_continues(folder, way):
    found = told(folder, way, "for good")
    check_same(found)
    assert found["state"] == "interrupted"
    assert any(refusal in found["error"] for refusal in REFUSALS)
    assert ".pt" in found["error"]
    assert found["saved"] == 5
    assert set(found["files"]) == {"last.pt", "best.pt"}
    assert found["steps"] == [3, 5, 6, 9, 10, 12, 12][: len(found["steps"])]  # what had room
    assert len(found["steps"]) >= 3
