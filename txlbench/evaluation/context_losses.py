"""Context losses: the loss on a token given exactly its c predecessors, for every c in one pass.

l(c, t) = -log p(x_t | x_{t-1}, ..., x_{t-c}) in nats (Dai et al. 2019, Appendix C), equal to what
feeding the c tokens alone, in one segment, would give.

The windows that give the loss of every position at every context, each read once.

Independent passes of a model on all cores, one thread each.

Losses that are appended to a file as they are computed, so that interrupted work continues.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from txlbench.errors import UserError
from txlbench.evaluation.context_reading import Reading
from txlbench.models.interface import LanguageModel


@dataclass(frozen=True)
class Windows:
    """W windows in order of start, and the E losses that they give.

    By causality a window that starts at p without memory gives the loss at context c on token
    p + c, for every c at once.

    Attributes:
        starts: [W], index of each window's first token.
        offsets: [W + 1]; window w gives the losses offsets[w] to offsets[w + 1].
        contexts: [E], the context of each loss.
        order: [E], the place of each loss in the flat [C, T] array.
    """

    starts: NDArray[np.int64]
    offsets: NDArray[np.int64]
    contexts: NDArray[np.int64]
    order: NDArray[np.int64]

    @classmethod
    def of(cls, contexts: NDArray[np.int64], positions: NDArray[np.int64]) -> "Windows":
        """The windows of all pairs of a context and a position.

        On an even grid whose step s divides the differences of contexts they are as few as
        T + (longest - shortest) / s.
        """
        starts_E = (positions[None, :] - contexts[:, None]).ravel()
        order = np.argsort(starts_E, kind="stable")
        starts, counts = np.unique(starts_E, return_counts=True)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return cls(starts, offsets, np.repeat(contexts, len(positions))[order], order)

    def __len__(self) -> int:
        return len(self.starts)

    def losses_of(self, first: int, end: int) -> slice:
        """The losses that windows [first, end) give."""
        return slice(int(self.offsets[first]), int(self.offsets[end]))

    def rows_of(self, first: int, end: int) -> NDArray[np.int64]:
        """The window of each of those losses, counted from `first`."""
        return np.repeat(np.arange(end - first), np.diff(self.offsets[first : end + 1]))

    def whole(self, losses: int) -> int:
        """How many of the first windows the first `losses` losses complete."""
        return int(np.searchsorted(self.offsets, losses, side="right")) - 1


Part = TypeVar("Part")
Result = TypeVar("Result")


def side_by_side(
    compute: Callable[[Part], Result], parts: Iterable[Part], device: torch.device
) -> Iterator[Result]:
    """What `compute` makes of each part, in order.

    On a CPU as many parts are computed at once as PyTorch has threads, each by one of them: small
    products gain little from a second thread, and its waiting costs other processes theirs.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield from map(compute, parts)
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(compute, parts)
    finally:
        torch.set_num_threads(threads)


TYPE = np.dtype("<f4")


class PartialLosses:
    """The first losses of a known order, in a file that one process at a time may extend.

    Raises:
        UserError: on entry, if another process is extending it, or it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b", buffering=0)
        except OSError as error:
            raise UserError(f"{self.path}: {error.strerror}", "make room to write there") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise UserError(
                f"{self.path}: another process is computing these losses", "wait for it"
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def __len__(self) -> int:
        """Losses that are there."""
        return os.fstat(self._file.fileno()).st_size // TYPE.itemsize

    def truncate(self, losses: int) -> None:
        """Keeps the first `losses` only."""
        self._file.truncate(losses * TYPE.itemsize)

    def append(self, losses: NDArray[Any]) -> None:
        """Adds losses, on the disk before this returns."""
        self._file.write(losses.astype(TYPE).tobytes())
        os.fsync(self._file.fileno())

    def read(self) -> NDArray[np.float32]:
        """All of them."""
        return np.fromfile(self.path, dtype=TYPE)


TARGETS = 512
"""Targets whose logits are computed at once: a large vocabulary makes them the largest tensor."""

Progress = Callable[[int, int], None]
"""Told how many windows are read, and how many there are."""


def context_losses(
    model: LanguageModel,
    ids: NDArray[Any],
    contexts: NDArray[np.int64],
    positions: NDArray[np.int64],
    reading: Reading,
    device: torch.device,
    kept: PartialLosses,
    progress: Progress,
) -> NDArray[np.float32]:
    """Losses [C, T] in nats of the tokens at `positions` [T], given `contexts` [C] predecessors.

    A context beyond `reading.longest` is that one: the model can use no more.

    Args:
        model: in evaluation mode and on `device`.
        ids: token ids of the split; only the windows being read leave the disk.
        kept: what an earlier call computed is not computed again.
    """
    usable = np.minimum(contexts, reading.longest)
    distinct = np.unique(usable)
    windows = Windows.of(distinct, positions)
    read = partial(_read, model, ids, windows, reading, device)
    _read_all(read, windows, reading, device, kept, progress)
    losses = np.empty(distinct.size * positions.size, dtype=np.float32)
    losses[windows.order] = kept.read()
    return losses.reshape(distinct.size, positions.size)[np.searchsorted(distinct, usable)]


def _read_all(
    read: Callable[[tuple[int, int]], NDArray[np.float32]],
    windows: Windows,
    reading: Reading,
    device: torch.device,
    kept: PartialLosses,
    progress: Progress,
) -> None:
    """Appends to `kept` what it lacks of all windows, part by part."""
    done = windows.whole(len(kept))
    done -= done % reading.windows if done < len(windows) else 0
    kept.truncate(int(windows.offsets[done]))
    progress(done, len(windows))
    parts = [
        (first, min(first + reading.windows, len(windows)))
        for first in range(done, len(windows), reading.windows)
    ]
    for (_, end), found in zip(parts, side_by_side(read, parts, device), strict=True):
        kept.append(found)
        progress(end, len(windows))


@torch.no_grad()
def _read(
    model: LanguageModel,
    ids: NDArray[Any],
    windows: Windows,
    reading: Reading,
    device: torch.device,
    part: tuple[int, int],
) -> NDArray[np.float32]:
    """The losses that windows [first, end) give, in their order."""
    first, end = part
    rows = windows.rows_of(first, end)
    columns = windows.contexts[windows.losses_of(first, end)] - 1
    length = int(columns.max()) + 1
    # Windows that need less are read on to the same length; what comes later changes nothing.
    places = windows.starts[first:end, None] + np.arange(length + 1)
    tokens = torch.from_numpy(ids[np.minimum(places, len(ids) - 1)].astype(np.int64)).to(device)
    losses = np.empty(len(rows), dtype=np.float32)
    state = model.evaluation_state(model.initial_state(end - first, reading.span))
    for start in range(0, length, reading.segment):
        stop = min(start + reading.segment, length)
        hidden_BTD, state = model.forward(tokens[:, start:stop], state)
        here = np.flatnonzero((columns >= start) & (columns < stop))
        if not here.size:
            continue
        chosen = torch.from_numpy(rows[here]).to(device), torch.from_numpy(columns[here]).to(device)
        targets = tokens[chosen[0], chosen[1] + 1]
        hidden_ND = hidden_BTD[chosen[0], chosen[1] - start]
        losses[here] = np.concatenate([*_losses(model, hidden_ND, targets)])
    return losses


def _losses(
    model: LanguageModel, hidden_ND: Tensor, targets_N: Tensor
) -> Iterator[NDArray[np.float32]]:
    for hidden, targets in zip(hidden_ND.split(TARGETS), targets_N.split(TARGETS), strict=True):
        yield model.losses(hidden[None], targets[None])[0].float().cpu().numpy()
