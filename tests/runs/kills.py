"""Kills a small training again and again; `test_kills` calls it and reads what it prints.

Called as `python -m tests.runs.kills SIGNAL KILLS SEED HOW` in a folder with spec.yaml. The
workers are forked from here, so that a life costs milliseconds; they are real processes that run
`worker.main`. HOW is "kill", or "cut" to cut the last checkpoint at a random byte after each.
"""

import itertools
import json
import os
import random
import signal
import sys
import time

import torch

from tests.runs.test_resuming import equal
from tests.runs.trial import prepared
from txlbench.records.schema import RunState
from txlbench.runs import worker
from txlbench.training.checkpoint import CheckpointSet, load


class Life:
    """A worker on a job, from its start to its end."""

    def __init__(self, job):
        reading, self.line = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _live(reading, self.line)
        os.close(reading)
        os.write(self.line, job.to_json().encode() + b"\n")

    def ends_within(self, seconds):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                os.close(self.line)
                return True
            time.sleep(0.001)
        return False

    def end(self, number=None):
        if number is not None:
            os.kill(self.pid, number)
        os.waitpid(self.pid, 0)
        os.close(self.line)


def _live(reading, writing):
    """Never returns."""
    status = 99
    try:
        os.dup2(reading, 0)
        os.close(writing)
        sys.stdin = open(0)  # noqa: SIM115
        log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = int(worker.main())
    finally:
        os._exit(status)


def main(number, kills, seed, how):
    torch.set_num_threads(1)
    _load_what_steps_need()
    number, chance = signal.Signals[number], random.Random(seed)
    straight, job = prepared("straight/trial")
    begin = time.monotonic()
    Life(job).end()
    span, landed, resumed = time.monotonic() - begin, 0, []
    for attempt in itertools.count():
        run, job = prepared(f"killed-{attempt}/trial")
        while landed < kills:
            life = Life(job)
            if life.ends_within(chance.uniform(0, span)):
                break
            life.end(number)
            landed += 1
            _note(run, resumed, how, chance)
        Life(job).end()
        _compare(run, straight)
        if landed == kills:
            break
    print(json.dumps({"kills": landed, "resumed": resumed, "runs": attempt + 1}))


def _load_what_steps_need():
    """The first optimiser loads seconds' worth of modules: once here, not in every life."""
    weight = torch.nn.Parameter(torch.zeros(1))
    weight.grad = torch.ones(1)  # by hand: a backward pass here would forbid one after a fork
    torch.optim.Adam([weight], fused=True).step()


def _note(run, resumed, how, chance):
    """Remembers from where the next life goes on, and spoils that if asked."""
    checkpoints = CheckpointSet(run.checkpoints)
    whole = (content for _, content in checkpoints.newest_first() if content is not None)
    resumed.append(next((content["progress"]["step"] for content in whole), 0))
    if how == "cut" and checkpoints.last.exists() and run.read_summary().training is None:
        content = checkpoints.last.read_bytes()
        checkpoints.last.write_bytes(content[: chance.randrange(len(content) or 1)])


def _compare(run, straight):
    assert run.state is RunState.FINISHED, run.read_status()
    assert run.metrics_file.read_bytes() == straight.metrics_file.read_bytes()
    for name in ("last.pt", "best.pt"):
        one, two = (load(each.checkpoints / name) for each in (run, straight))
        for content in (one, two):
            content.pop("timings_bytes", None)
        assert equal(one, two), name
    results = [each.read_summary().results[0].sweep for each in (run, straight)]
    assert results[0] == results[1]
    assert not list(run.checkpoints.glob(".*"))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
