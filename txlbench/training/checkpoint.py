"""Checkpoints: tensors and plain data only, whole or absent, loaded without executing code.

A run keeps the newest two to continue from (`CheckpointSet`), and the best to measure.
`SaveSchedule` says when one is due beside those of validations.
"""

import os
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from txlbench import seeding
from txlbench.config.train import TrainConfig
from txlbench.errors import UserError
from txlbench.files import write_atomically
from txlbench.training.state import Progress, TrainingState
from txlbench.world import ALONE, World

SCHEMA = "txlbench.checkpoint/1"


def save_last(
    path: Path,
    state: TrainingState,
    metrics_bytes: int,
    *,
    timings_bytes: int = 0,
    settings: Mapping[str, object] | None = None,
    memories: Sequence[Mapping[str, Tensor]] | None = None,
    approve: Callable[[Path], object] = lambda _: None,
) -> None:
    """Writes everything an exact resume needs: state, random sources, lengths of the logs.

    Args:
        memories: as of `whole_memories`; default the state's own.
        settings: what a training that continues from here should have been given, by name.
        approve: as of `write_atomically`; called after the file was verified.
    """
    content = {
        "schema": SCHEMA,
        "model": state.model.state_dict(),
        "optimiser": state.optimiser.state_dict(),
        "memories": whole_memories(state) if memories is None else memories,
        "progress": asdict(state.progress),
        "random": seeding.capture(),
        "average": _average_content(state),
        "metrics_bytes": metrics_bytes,
        "timings_bytes": timings_bytes,
        "settings": dict(settings or {}),
    }
    _write(path, content, approve)


def whole_memories(state: TrainingState, world: World = ALONE) -> list[dict[str, Tensor]]:
    """The memory of each chunk of the batch, with the rows of all processes in order of stream.

    So a checkpoint does not tell how many processes there were, and any number may go on.
    """
    return [
        {name: world.whole(rows) for name, rows in memory.tensors().items()}
        for memory in state.memories
    ]


def _average_content(state: TrainingState) -> dict[str, Any] | None:
    """The mean by names of weights, each once, and how many steps are in it."""
    if state.average is None:
        return None
    weights = {name: weight.detach() for name, weight in state.average.module.named_parameters()}
    return {"count": int(state.average.n_averaged), "weights": weights}


def best_content(state: TrainingState) -> dict[str, Any]:
    """A best checkpoint of the weights as they are now: a copy that later steps do not change.

    Weights that layers share are shared in the copy too.
    """
    weights = state.evaluated.state_dict()
    copies = {place(weight): weight.clone() for weight in weights.values()}
    weights = {name: copies[place(weight)] for name, weight in weights.items()}
    return {"schema": SCHEMA, "model": weights, "progress": asdict(state.progress)}


def place(weight: Tensor) -> tuple[int, torch.Size]:
    """Where a weight lies in memory: equal for the names of one that layers share."""
    return weight.data_ptr(), weight.shape


def write_best(path: Path, content: Mapping[str, object]) -> None:
    """Writes the content that `best_content` made."""
    _write(path, content)


def save_model(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Writes the weights of a model that was not trained here, as a best checkpoint."""
    _write(path, {"schema": SCHEMA, "model": dict(weights), "progress": asdict(Progress())})


def load(path: Path) -> dict[str, Any]:
    """Reads a checkpoint to the CPU; UserError naming the file if it is missing, torn or foreign.

    Every byte is held against its checksum first, which torch itself does not do. Random states
    have to be on the CPU, and weights are copied to where the model is.
    """
    return _read(path, in_memory=True)


def evaluation_weights(content: Mapping[str, Any]) -> dict[str, Tensor]:
    """The weights that were validated at a checkpoint's step: averaged ones once averaging began.

    Returns:
        The model's state dict; unchecked, as the checkpoint has it.
    """
    own: Any = content.get("model")
    average = content.get("average")
    if average is None or not average["count"]:
        weights: dict[str, Tensor] = own
        return weights
    # A weight that two layers share has two names, but a mean under one of them only.
    means = {place(own[name]): mean for name, mean in average["weights"].items()}
    return {name: means.get(place(weight), weight) for name, weight in own.items()}


def restore(content: dict[str, Any], state: TrainingState, world: World = ALONE) -> int:
    """Restores `state` and the random sources as `save_last` found them; this process's rows.

    Returns:
        The length in bytes that the metrics file had.
    """
    state.model.load_state_dict(content["model"])
    state.optimiser.load_state_dict(content["optimiser"])
    device = next(state.model.parameters()).device
    state.memories = [
        memory.replace({name: world.own(rows).to(device) for name, rows in tensors.items()})
        for memory, tensors in zip(state.memories, content["memories"], strict=True)
    ]
    state.progress = Progress(**content["progress"])
    if state.average is not None:
        state.average.n_averaged.fill_(content["average"]["count"])
        state.average.module.load_state_dict(content["average"]["weights"], strict=False)
    seeding.restore(content["random"])
    return int(content["metrics_bytes"])


def same_training(one: Path, other: Path) -> bool:
    """Whether two checkpoints hold the same training, whatever their logs of times."""
    contents = [load(path) for path in (one, other)]
    for content in contents:
        content.pop("timings_bytes", None)
        content.pop("settings", None)
    return _equal(*contents)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


def _write(
    path: Path, content: Mapping[str, object], approve: Callable[[Path], object] = lambda _: None
) -> None:
    def verified(aside: Path) -> None:
        _verify(aside)
        approve(aside)

    write_atomically(path, lambda file: _save(content, file), verified)


def _save(content: Mapping[str, object], file: BinaryIO) -> None:
    """Calls torch.save and re-raises the disk's error, which torch hides behind its own."""
    try:
        torch.save(dict(content), file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise


def _verify(path: Path) -> None:
    """Reads back what was flushed, from the disk where the system allows; OSError if it differs.

    The checksums cover every tensor's bytes, made while they were handed over for writing.
    """
    with path.open("rb") as file:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        _read(path, in_memory=False)
    except UserError as error:
        raise OSError(5, "what was written could not be read back", str(path)) from error


def _read(path: Path, in_memory: bool) -> dict[str, Any]:
    """The content at `path`; its tensors stay in the file unless `in_memory`."""
    try:
        _check_members(path)
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=not in_memory)
    except FileNotFoundError as error:
        raise UserError(f"{path}: no such checkpoint", "train the run first") from error
    except MemoryError:
        raise
    except Exception as error:  # of many kinds, from damaged bytes
        raise _broken(path) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise _broken(path)
    return content


def _check_members(path: Path) -> None:
    """Holds every member of the archive against its checksum; none may need unpacking."""
    with zipfile.ZipFile(path) as archive:
        packed = any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist())
        if packed or archive.testzip() is not None:
            raise zipfile.BadZipFile(path)


def _broken(path: Path) -> UserError:
    return UserError(
        f"{path}: not a whole txlbench checkpoint", "restore it from a copy, or train again"
    )


@dataclass(frozen=True)
class CheckpointSet:
    """The paths of a run's checkpoints, and how they replace each other."""

    directory: Path

    @property
    def last(self) -> Path:
        return self.directory / "last.pt"

    @property
    def previous(self) -> Path:
        """The checkpoint before the last one."""
        return self.directory / "previous.pt"

    @property
    def best(self) -> Path:
        return self.directory / "best.pt"

    def save(
        self,
        state: TrainingState,
        metrics_bytes: int,
        timings_bytes: int,
        settings: Mapping[str, object],
        memories: Sequence[Mapping[str, Tensor]] | None = None,
    ) -> None:
        """Writes the last checkpoint; the one it replaces is kept as the previous one.

        Raises:
            OSError: if it could not be written; then both are as they were.
        """

        def make_way(_: Path) -> None:
            if self.last.exists():
                self.last.replace(self.previous)

        save_last(
            self.last,
            state,
            metrics_bytes,
            timings_bytes=timings_bytes,
            settings=settings,
            memories=memories,
            approve=make_way,
        )

    def newest_first(self) -> Iterator[tuple[Path, dict[str, Any] | None]]:
        """The checkpoints to continue from; None for the content of one that is damaged.

        A missing last one counts as damaged where there is a previous one.
        """
        for path in (self.last, self.previous):
            if path.exists() or (path == self.last and self.previous.exists()):
                try:
                    content = load(path)
                except UserError:
                    yield path, None
                else:
                    yield path, content

    def remove_remains(self) -> None:
        """Deletes temporary files of a process that was killed while it wrote."""
        for path in self.directory.glob(".*.pt.*"):
            path.unlink(missing_ok=True)


def set_aside(path: Path) -> Path:
    """Renames a damaged file so that nothing takes it for a whole one, and returns its new name."""
    aside = path.with_name(f"{path.name}.damaged")
    if path.exists():
        path.replace(aside)
    return aside


class SaveSchedule:
    """Says when a checkpoint is due, by steps and time since the last one.

    Args:
        step: the step that training goes on from.
        asked: set by whoever wants a checkpoint now; cleared once there is one.
    """

    def __init__(self, config: TrainConfig, step: int, asked: threading.Event) -> None:
        self._config = config
        self._asked = asked
        self.saved(step)

    def saved(self, step: int) -> None:
        """Restarts the count; a failed checkpoint counts too, or each step would try again."""
        self._step, self._time = step, time.monotonic()
        self._asked.clear()

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint should be written after this step."""
        config = self._config
        steps, minutes = config.checkpoint_interval, config.checkpoint_minutes
        return (
            self._asked.is_set()
            or (steps is not None and step - self._step >= steps)
            or (minutes is not None and time.monotonic() - self._time >= 60 * minutes)
        )
