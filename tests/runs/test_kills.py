"""Killed at random moments, a run ends as one that was not: weights and lines, bit for bit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.trial import write_spec

ROOT = Path(__file__).parents[2]
SEED = 20
EVERYTHING = {
    "model.dropatt": 0.1,
    "train.mem_len": 12,
    "train.average_from": 0.3,
    "train.memory_reset": 0.3,
    "train.memory_reset_from": 0.1,
    "train.checkpoint_interval": 7,
    "train.eval_interval": 20,
    "train.log_interval": 1,
    "evaluate.attention_lengths": [4],
}
"""All that a checkpoint has to bring back."""


def killed(number, kills, how="kill", steps=100):
    """Where each life began after a kill; `kills.py` compares all that the runs leave."""
    write_spec({**EVERYTHING, "train.max_step": steps})
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.runs.kills", number, str(kills), str(SEED), how]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=240)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["kills"] == kills
    return told["resumed"]


@pytest.mark.full
@pytest.mark.alone
def test_killed_a_few_times():
    assert any(killed("SIGKILL", 5, steps=80))


@pytest.mark.full
@pytest.mark.alone
def test_killed_at_twenty_random_moments():
    """Among them moments before the first checkpoint, and different steps after it."""
    assert len(set(killed("SIGKILL", 20))) > 3


@pytest.mark.full
@pytest.mark.alone
def test_asked_to_stop_at_twenty_random_moments():
    assert len(set(killed("SIGTERM", 20))) > 6


@pytest.mark.full
@pytest.mark.alone
def test_checkpoints_cut_at_twenty_random_bytes():
    assert any(killed("SIGKILL", 20, "cut"))
