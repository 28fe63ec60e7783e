"""What can be told before anything is trained: changed texts, time, disk space, memory."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from txlbench.config.counting import checkpoint_bytes, resume_bytes
from txlbench.config.memory_use import training_memory
from txlbench.config.model import clusters_of
from txlbench.config.run_config import CorpusConfig, RunConfig
from txlbench.errors import UserError
from txlbench.machine import Devices, check_name, cores, device_memory
from txlbench.records.run_directory import RunDirectory
from txlbench.runs.failure import readable, remedy
from txlbench.runs.plan import Need, PlannedRun, as_met, vocabulary_size
from txlbench.runs.plan_schema import HERE, PlanRecord
from txlbench.runs.status import duration


def changed_texts(plan: Sequence[PlannedRun], device: str) -> Mapping[str, str]:
    """Names the runs, by id, whose text has changed since, so that they are trained anew.

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
            checksums[corpus] = None if corpus.path is None else _checksum(corpus)
        found = checksums[corpus]
        size = vocabulary_size(run)
        if size is not None:
            clusters_of(run.config.model, size)
        if found is not None and _trained_on(run) not in (None, found):
            stale[run.id] = f"{corpus.name} has changed since; it is trained anew"
    return stale


def _trained_on(run: PlannedRun) -> str | None:
    try:
        return run.directory.read_facts().corpus.checksum
    except UserError:  # damaged, which the plan says
        return None


CPU_FLOPS_A_SECOND = 5e10
"""Of one core in training; a guess for where nothing is trained yet (70e9 were measured on a Xeon
with bfloat16 products, about 20e9 in float32)."""


@dataclass(frozen=True)
class Cost:
    """What training the runs of a plan takes.

    Attributes:
        runs: number of runs that need training.
        flops: floating-point operations of all of them; None if a vocabulary is unknown.
        seconds: on this machine; None on a GPU, whose speed is known after the first run.
        disk: bytes of checkpoints; None if a vocabulary is unknown.
        is_guess: the time is not from runs of this experiment.
    """

    runs: int
    flops: float | None
    seconds: float | None
    disk: int | None
    is_guess: bool

    def __str__(self) -> str:
        if not self.runs:
            return "nothing to train"
        count = f"{self.runs} run{'s' * (self.runs > 1)} to train"
        if self.flops is None or self.disk is None:
            unknown = "time and disk space are known once the text is prepared"
            return f"{count}; {unknown} (`txlbench data prepare`)"
        time = "time unknown until a run is trained"
        if self.seconds is not None:
            guess = f" (a guess: {CPU_FLOPS_A_SECOND / 1e9:.0f} GFLOP/s a core)"
            time = f"about {duration(self.seconds)} on {cores()} cores{guess * self.is_guess}"
        return f"{count}: {self.flops:.1e} FLOPs, {time}, {readable(self.disk)} of checkpoints"


def cost_of(plan: PlanRecord, device: str) -> Cost:
    """The cost of the runs of `plan` that need training, on all cores of this machine."""
    todo = [run for run in plan.runs if run.need is Need.TRAINING]
    flops = [run.train_flops for run in todo if run.train_flops is not None]
    disk = [run.estimated_bytes for run in todo if run.estimated_bytes is not None]
    if len(flops) < len(todo):
        return Cost(len(todo), None, None, None, True)
    if (probed := plan.total.hours.get(HERE)) is not None:
        return Cost(len(todo), sum(flops), probed * 3600, sum(disk), False)
    known = [run.estimated_seconds for run in todo if run.estimated_seconds is not None]
    seconds: float | None = sum(known) / min(cores(), max(len(todo), 1))
    if len(known) < len(todo):
        on_gpu = device.startswith("cuda") or (device == "auto" and Path("/dev/nvidia0").exists())
        seconds = None if on_gpu else sum(flops) / (CPU_FLOPS_A_SECOND * cores())
    return Cost(len(todo), sum(flops), seconds, sum(disk), len(known) < len(todo))


def long_training(plan: PlanRecord, device: str) -> list[str]:
    """A warning if training takes more than a day, so that nobody waits for it in vain."""
    cost = cost_of(plan, device)
    return [str(cost)] if cost.seconds is not None and cost.seconds > 86400 else []


def _checksum(corpus: CorpusConfig) -> str:
    # Only for a text of one's own: 20 ms.
    from txlbench.data.download import check_not_empty, own_checksum

    checksum = own_checksum(corpus, remember=False)  # which also names a file that is missing
    check_not_empty(corpus)
    return checksum


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


def check_writable(path: Path) -> None:
    """Refuses (UserError) a directory that could not be made or written, before any work."""
    place = _existing(path)
    if not place.is_dir() or not os.access(place, os.W_OK):
        what = "not writable" if place.is_dir() else "not a directory"
        raise UserError(f"{path}: {what}", "choose another --out")


def check_memory(
    todo: Sequence[PlannedRun], sizes: Mapping[str, int], devices: Devices
) -> list[str]:
    """Warns of trainings that would not fit in memory together.

    Nothing is refused, since one row that fails does not stop the others.

    Args:
        sizes: vocabulary sizes by run id.
    """
    training = [
        run for run in todo if run.need() is not Need.EVALUATION and run.config.model.kind != "hf"
    ]
    device, limit = devices.names[0], device_memory(devices.names[0])
    if limit is None or not training:
        return []
    together = -(-devices.jobs // len(devices.names))
    least, usual = [], []
    for run in training:
        tensors, all_of_it = _memory(as_met(run), sizes[run.id], device)
        least.append((tensors, run))
        usual.append((all_of_it, run))
    if problem := _excess(least, together, limit, f"at least on {device}"):
        return [f"{'; '.join(problem)}; it will probably fail"]
    if problem := _excess(usual, together, limit, f"about, on {device}"):
        return ["; ".join(problem)]
    return []


def _excess(
    uses: list[tuple[int, PlannedRun]], together: int, limit: int, how: str
) -> tuple[str, str] | None:
    """What the largest of these trainings need beyond `limit` bytes at once, and a remedy."""
    largest = sorted(uses, key=lambda use: use[0], reverse=True)[:together]
    if sum(size for size, _ in largest) <= limit:
        return None
    needed, (each, run) = sum(size for size, _ in largest), largest[0]
    count = len(largest)
    what = f"{count} trainings at once take" if count > 1 else "training takes"
    problem = (
        f"row '{run.labels[0]}': {what} {readable(needed)} of memory ({how}), "
        f"where there are {readable(limit)}"
    )
    fitting = limit // each
    return problem, f"--jobs {fitting}" if 0 < fitting < count else remedy(run.config)


def _memory(config: RunConfig, size: int, device: str) -> tuple[int, int]:
    """Bytes of tensors in the smallest number format that `auto` may take, and all in the usual."""
    kind, asked = device.partition(":")[0], config.train.precision
    usual = "bf16" if asked == "auto" and kind == "cuda" else asked
    least = training_memory(config, size, "bf16" if asked == "auto" else asked, kind)
    return least.total - least.overhead, training_memory(config, size, usual, kind).total


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
