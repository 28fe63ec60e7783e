"""Whether a grid's checkpoints fit the disk, asked before any of its runs starts."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from txlbench.config.counting import checkpoint_bytes, resume_bytes
from txlbench.errors import UserError
from txlbench.execution.out_of_memory import readable
from txlbench.execution.plan import Need, PlannedRun
from txlbench.records.run_directory import RunDirectory


def check_space(
    path: Path, todo: Sequence[PlannedRun], sizes: Mapping[str, int], jobs: int
) -> None:
    """Refuses runs whose checkpoints the file system of `path` has no room for.

    What they have on disk already counts; a checkpoint that is being written stands beside those
    it replaces, once for each run at a time.

    Args:
        sizes: vocabulary sizes by run id.

    Raises:
        UserError: naming what is free and what is needed.
    """
    training = [run for run in todo if run.need() is not Need.EVALUATION]
    aside = sorted((resume_bytes(run.config, sizes[run.id]) for run in training), reverse=True)
    needed = sum(aside[:jobs]) + sum(
        max(0, checkpoint_bytes(run.config, sizes[run.id]) - _present(run.directory))
        for run in training
    )
    free = shutil.disk_usage(_existing(path)).free
    if needed > free:
        raise UserError(
            f"{path}: {readable(free)} free, but the checkpoints of {len(training)} "
            f"{'runs take' if len(training) > 1 else 'run take'} up to {readable(needed)}",
            "make room, choose another --out, or take fewer rows with --only",
        )


def _present(run: RunDirectory) -> int:
    if not run.checkpoints.is_dir():
        return 0
    return sum(path.stat().st_size for path in run.checkpoints.glob("*.pt"))


def _existing(path: Path) -> Path:
    """The nearest folder above `path` that is there, which is on the same file system."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path
