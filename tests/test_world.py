"""Processes that share a run see what one sees; `tests/training/ranks.py` says of what that holds.

Alone nothing is sent, and nothing costs.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from txlbench.world import ALONE

ROOT = Path(__file__).parents[1]


def started(folder, size):
    """Processes as torchrun starts them, each with a port of one and the same."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    for rank in range(size):
        yield subprocess.Popen(
            [sys.executable, "-m", "tests.training.ranks", str(folder)],
            env={**os.environ, **place, "RANK": str(rank), "WORLD_SIZE": str(size)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=[pytest.mark.full, pytest.mark.alone])])
def test_processes_that_share_a_training_are_as_one(tmp_path, size):
    processes = list(started(tmp_path, size))
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-5000:]
        assert "6 checks" in output


def test_alone_nothing_is_copied_or_sent():
    rows, array = torch.ones(4, 2), np.ones(3)
    assert ALONE.own(rows) is rows
    assert ALONE.whole(rows) is rows
    assert ALONE.total(array)[0] is array
    assert ALONE.agree(True, False) == (True, False)
    assert ALONE.tell("text") == "text"
    assert not torch.distributed.is_initialized()
    ALONE.leave()
