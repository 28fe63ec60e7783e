"""`ablate` under an outer torchrun: its processes share each run, and one of them speaks."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.runs.trial import finished, plan_of, write_spec, write_text
from txlbench.records.loss_file import read_loss_file
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
@pytest.mark.alone
def test_all_processes_share_each_run_and_the_first_one_speaks():
    write_spec({"train.max_step": 8}, rows=[{"label": "a"}, {"label": "b", "set": {"train.lr": 1}}])
    done = torchrun("ablate", "spec.yaml", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("a (seed 1): finished") == 1
    for run in plan_of():
        assert run.directory.state is RunState.FINISHED
        assert run.directory.read_facts().devices == 2


@pytest.mark.full
@pytest.mark.alone
def test_rows_that_cannot_be_divided_are_refused_in_one_line():
    write_spec({"train.batch_size": 3})
    done = torchrun("ablate", "spec.yaml", "--device", "cpu")
    assert done.returncode != 0
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: row")]
    assert "torchrun's 2 processes does not divide batch_size / batch_chunk, 3 / 1 = 3" in line


@pytest.mark.full
@pytest.mark.alone
def test_all_processes_share_the_windows_of_recl(tmp_path):
    """Losses are those of one process, also where that was interrupted before."""
    write_text(Path("mine.txt"), words=4000)
    write_spec({"train.max_step": 4})
    run = finished()
    recl = ("recl", "--models", str(run.path), "--contexts", "2:12:2", "--split", "train")
    recl = (*recl, "--tokens", "1000", "--device", "cpu", "--batch-size", "4")
    one = subprocess.run(
        [sys.executable, "-m", "txlbench", *recl],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    (file,) = run.losses.glob("*.npz")
    alone = read_loss_file(file).losses
    file.rename(tmp_path / "alone.npz")
    for begun in (0, 7, 100):
        alone_in_order = np.full(begun, 3.25, dtype="<f4")  # as if losses had been kept before
        file.with_suffix(".part").write_bytes(alone_in_order.tobytes())
        done = torchrun(*recl, "--out", str(tmp_path / f"from-{begun}"))
        assert done.returncode == 0, done.stderr
        shared = read_loss_file(file).losses
        kept = shared == 3.25
        assert kept.sum() <= begun
        assert kept.any() == (begun == 100)
        np.testing.assert_allclose(shared[~kept], alone[~kept], rtol=1e-5)
        assert done.stdout.count("RECL") == one.stdout.count("RECL") > 0
        assert not file.with_suffix(".part").exists()
        file.unlink()
