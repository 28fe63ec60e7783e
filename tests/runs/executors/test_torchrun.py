"""`ablate` under an outer torchrun: its processes share each run, and one of them speaks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.trial import plan_of, write_spec
from txlbench.records.schema import RunState

ROOT = Path(__file__).parents[3]


def torchrun(*arguments):
    command = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "txlbench"]
    return subprocess.run(
        [sys.executable, "-m", *command, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.mark.full
def test_all_processes_share_each_run_and_the_first_one_speaks():
    write_spec({"train.max_step": 8}, rows=[{"label": "a"}, {"label": "b", "set": {"train.lr": 1}}])
    done = torchrun("ablate", "spec.yaml", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("a (seed 1): finished") == 1
    for run in plan_of():
        assert run.directory.state is RunState.FINISHED
        assert run.directory.read_facts().devices == 2


@pytest.mark.full
def test_rows_that_cannot_be_divided_are_refused_in_one_line():
    write_spec({"train.batch_size": 3})
    done = torchrun("ablate", "spec.yaml", "--device", "cpu")
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: row")]
    assert "torchrun's 2 processes does not divide batch_size / batch_chunk, 3 / 1 = 3" in line
