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

from txlbench import world
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


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.parametrize("size", [2, 4])
def test_processes_that_share_a_training_are_as_one(tmp_path, size):
    processes = list(started(tmp_path, size))
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-5000:]
        assert "6 checks" in output


class Sent:
    """A sum over two processes that have the same gradients, once it is waited for."""

    def __init__(self, flat):
        self.flat = flat

    def wait(self):
        self.flat.mul_(2)


def test_gradients_are_sent_while_others_are_still_made(monkeypatch):
    monkeypatch.setattr(world, "BUCKET_BYTES", 4 * 5 * 5 * 2)  # two weights of a layer
    layers = torch.nn.Sequential(*(torch.nn.Linear(5, 5, bias=False) for _ in range(6)))
    unused, empty = torch.nn.Parameter(torch.ones(3)), torch.nn.Parameter(torch.ones(0))
    made, sent_after = [], []
    for number, layer in enumerate(layers):
        layer.weight.register_post_accumulate_grad_hook(lambda _, n=number: made.append(n))

    def send(flat):
        sent_after.append((len(made), flat.numel()))
        return Sent(flat)

    def gradients(backward):
        for layer in layers:
            layer.weight.grad = None
        loss = layers(torch.ones(2, 5)).sum()
        backward(loss)
        return [layer.weight.grad.clone() for layer in layers]

    expected = gradients(lambda loss: loss.backward())
    made.clear()
    total = torch.tensor(3.0)

    def shared(loss):
        sums = world._GradientSums([unused, *layers.parameters(), empty], send)
        sums.during(loss.backward)
        sums.finish([total])

    found = gradients(shared)
    assert all(torch.equal(one, 2 * other) for one, other in zip(found, expected, strict=True))
    assert unused.grad is None
    assert total == 6
    assert sent_after == [(2, 50), (4, 50), (6, 50), (6, 1)]
    gradients(shared)  # hooks of the step before are gone
    assert len(sent_after) == 8


def test_alone_nothing_is_copied_or_sent():
    rows, array = torch.ones(4, 2), np.ones(3)
    assert ALONE.own(rows) is rows
    assert ALONE.whole(rows) is rows
    assert ALONE.total(array)[0] is array
    assert ALONE.agree(True, False) == (True, False)
    assert ALONE.tell("text") == "text"
    assert not torch.distributed.is_initialized()
    ALONE.leave()
