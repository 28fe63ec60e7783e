"""A job passes between processes as one line.

What `ablate` makes of signals, in a process of its own.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from txlbench.config.plugins import PluginFile
from txlbench.config.run_config import EvaluateConfig
from txlbench.runs.job import Job


def test_a_job_comes_back_from_its_line():
    evaluations = (
        EvaluateConfig(),
        EvaluateConfig(split="valid", attention_lengths=(8, 4), tokens=9, tolerance=1e-3),
    )
    plugins = (PluginFile("/a b/ü.py", "print('$x')\n# ü\n"),)
    job = Job(Path("results/a b/ü\n"), "cuda:1", evaluations, plugins=plugins)
    line = job.to_json()
    assert "\n" not in line
    assert Job.from_json(line) == job


CODE = """
import sys, time
from txlbench.runs.job import interrupts
with interrupts():
    try:
        print("ready", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted once", flush=True)
        time.sleep(60)
"""


@pytest.fixture
def process():
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [sys.executable, "-c", CODE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_first_one_interrupts_and_the_second_one_leaves_at_once(process, first, second):
    process.send_signal(first)
    assert process.stdout.readline() == "interrupted once\n"
    process.send_signal(second)
    assert process.wait(10) == 130
    said = process.stderr.read().splitlines()
    assert said[-1] == "interrupted"
    assert "once more leaves at once" in said[0]


def test_a_request_to_save_harms_nothing_where_there_is_nothing_to_save(process):
    process.send_signal(signal.SIGUSR1)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted once\n"


def test_handlers_are_put_back():
    from txlbench.runs.job import SAVING, STOPPING, interrupts

    before = [signal.getsignal(number) for number in (*STOPPING, SAVING)]
    with interrupts():
        assert signal.getsignal(SAVING) == signal.SIG_IGN
    assert [signal.getsignal(number) for number in (*STOPPING, SAVING)] == before
