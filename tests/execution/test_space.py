"""A grid that the disk has no room for is refused before it starts."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.execution.in_process import run_suite
from tests.execution.trial import execute_all, plan_of, write_spec
from txlbench.config.counting import checkpoint_bytes, resume_bytes
from txlbench.errors import UserError
from txlbench.execution.space import check_space

OUT = Path("results/trial")


def needed(jobs, free):
    """Whether `free` bytes are enough for spec.yaml."""
    plan = plan_of()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
        check_space(OUT, plan, {run.id: 256 for run in plan}, jobs)


def test_checkpoints_of_all_runs_and_those_being_written_must_fit():
    write_spec(seeds=[1, 2, 3])
    config = plan_of()[0].config
    room = 3 * checkpoint_bytes(config, 256) + 2 * resume_bytes(config, 256)
    needed(2, room)
    with pytest.raises(UserError, match=r"results/trial: .*KiB free, but the checkpoints of 3"):
        needed(2, room - 1)
    with pytest.raises(UserError, match="--out"):
        needed(3, room)


def test_what_is_there_already_counts():
    write_spec({"model.d_model": 64})
    config = plan_of()[0].config
    room = checkpoint_bytes(config, 256) + resume_bytes(config, 256)
    (run,) = plan_of()
    with pytest.raises(UserError):
        needed(1, 0.5 * room)
    execute_all([run])
    (run.directory.path / "summary.json").unlink()
    needed(1, 0.5 * room)


def test_a_run_that_is_only_measured_needs_none():
    write_spec()
    execute_all(plan_of())
    write_spec({"evaluate.attention_lengths": [4, 12]})
    needed(1, 0)


@pytest.mark.usefixtures("one_process")
def test_nothing_is_started_or_written_on_a_disk_that_is_too_small():
    """A real disk, and a model that no disk can take."""
    write_spec({"model.d_inner": 2**42})
    with pytest.raises(UserError, match=r"free, but the checkpoints of 1 run take up to .* PiB"):
        run_suite()
    assert not OUT.exists()
