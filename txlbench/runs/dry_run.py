"""Whether a grid's checkpoints fit the disk, asked before any of its runs starts.

What a dry run can tell of texts, sizes and device without preparing or loading anything.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from txlbench.config.counting import checkpoint_bytes, resume_bytes
from txlbench.config.model import clusters_of
from txlbench.config.run_config import CorpusConfig
from txlbench.data.download import own_checksum
from txlbench.errors import UserError
from txlbench.machine import check_name
from txlbench.records.run_directory import RunDirectory
from txlbench.runs.failure import readable
from txlbench.runs.plan import Need, PlannedRun, vocabulary_size


def foresee(plan: Sequence[PlannedRun], device: str) -> Mapping[str, str]:
    """Why a run counts as not there, by id: the text that it was trained on has changed.

    Raises:
        UserError: for what the real call would refuse: an unknown device, a text that is missing
            or a cutoff beyond the vocabulary, as far as that is known.
    """
    check_name(device)
    stale: dict[str, str] = {}
    checksums: dict[CorpusConfig, str | None] = {}
    for run in plan:
        corpus = run.config.corpus
        if corpus not in checksums:
            own = corpus.path is not None
            checksums[corpus] = own_checksum(corpus, remember=False) if own else None
        found = checksums[corpus]
        size = vocabulary_size(run)
        if size is not None:
            clusters_of(run.config.model, size)
        if found is not None and _trained_on(run) not in (None, found):
            stale[run.id] = f"{corpus.name} has changed since; it is trained anew"
    return stale


def _trained_on(run: PlannedRun) -> str | None:
    try:
        checksum = run.directory.read_facts().get("corpus", {}).get("checksum")
    except UserError:  # damaged, which the plan says
        return None
    return None if checksum is None else str(checksum)


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
