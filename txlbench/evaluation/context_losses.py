"""Context losses: the loss on a token given exactly its c predecessors, for every c in one pass.

l(c, t) = -log p(x_t | x_{t-1}, ..., x_{t-c}) in nats (Dai et al. 2019, Appendix C), equal to what
feeding the c tokens alone, in one segment, would give. Each window gives all its contexts at once;
on a CPU windows are read by all cores, and what is computed survives an interruption.
"""

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from txlbench.errors import UserError
from txlbench.evaluation.windows import Windows
from txlbench.world import ALONE, World

Part = TypeVar("Part")
Result = TypeVar("Result")


def side_by_side(
    compute: Callable[[Part], Result], parts: Iterable[Part], device: torch.device
) -> Iterator[Result]:
    """Applies `compute` to each part and yields the results in order.

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


class StorageError(UserError):
    """Losses cannot be kept: another process is writing them, or there is no room."""


class PartialLosses:
    """The first losses of a known order, in a file that one process at a time may extend.

    Args:
        world: the processes that share the windows, the first of which extends the file.

    Raises:
        StorageError: on entry, if another process is extending it, or it cannot be written.
    """

    def __init__(self, path: Path, world: World = ALONE) -> None:
        self.path, self.world = path, world

    def __enter__(self) -> Self:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b", buffering=0)
        except OSError as error:
            raise StorageError(
                f"{self.path}: {error.strerror}", "make room to write there"
            ) from error
        if not self.world.writes:
            return self
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise StorageError(
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
        if self.world.writes:
            self._file.truncate(losses * TYPE.itemsize)

    def append(self, losses: NDArray[Any]) -> None:
        """Adds losses, on the disk before this returns."""
        if self.world.writes:
            self._file.write(losses.astype(TYPE).tobytes())
            os.fsync(self._file.fileno())

    def read(self) -> NDArray[np.float32]:
        """All losses in the file."""
        return np.fromfile(self.path, dtype=TYPE)


class WindowModel(Protocol):
    """A model that gives losses of windows of tokens: all that context losses need of one."""

    def token_losses(self, tokens_BT: Tensor) -> Tensor:
        """Losses [B, T - 1] in nats of tokens 1, ..., T - 1, each given all before it in its row.

        Args:
            tokens_BT: windows side by side, int64; nothing is remembered from one to the next.
        """


@runtime_checkable
class GreedyModel(WindowModel, Protocol):
    """A model that also tells which tokens it would have chosen itself."""

    def token_predictions(self, tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Losses as `token_losses` gives them, and whether each token was the likeliest.

        The second is bool, [B, T - 1], and False where there is no loss.
        """


Progress = Callable[[int, int], None]
"""Takes the number of windows read so far, and of all windows."""


def context_losses(
    model: WindowModel,
    ids: NDArray[Any],
    contexts: NDArray[np.int64],
    positions: NDArray[np.int64],
    kept: PartialLosses,
    *,
    longest: int | None = None,
    at_once: int = 1,
    device: torch.device,
    progress: Progress,
    check: Callable[[float], None] | None = None,
) -> NDArray[np.float32]:
    """Losses [C, T] in nats of the tokens at `positions` [T], given `contexts` [C] predecessors.

    Args:
        ids: token ids of the split; only the windows being read leave the disk.
        kept: what an earlier call computed is not computed again.
        longest: a longer context counts as this one: the model can use no more.
        at_once: windows read side by side.
        check: is given the mean loss of the first windows, and raises if they make no sense.
    """
    usable = contexts if longest is None else np.minimum(contexts, longest)
    distinct = np.unique(usable)
    windows = Windows.of(distinct, positions)
    losses = window_losses(
        model, ids, windows, kept, at_once=at_once, device=device, progress=progress, check=check
    )
    return losses.reshape(distinct.size, positions.size)[np.searchsorted(distinct, usable)]


def window_losses(
    model: WindowModel,
    ids: NDArray[Any],
    windows: Windows,
    kept: PartialLosses,
    *,
    at_once: int = 1,
    device: torch.device,
    progress: Progress,
    check: Callable[[float], None] | None = None,
) -> NDArray[np.float32]:
    """Losses [E] in nats that `windows` give, in the order of the flat [C, T] array.

    Args:
        check: is given the mean loss of the first windows, as in `context_losses`.
    """
    read = partial(_read, model, ids, windows, device)
    _read_all(read, windows, at_once, device, kept, progress, check)
    losses = np.empty(len(windows.order), dtype=np.float32)
    losses[windows.order] = kept.read()
    return losses


def _read_all(
    read: Callable[[tuple[int, int]], NDArray[np.float32]],
    windows: Windows,
    at_once: int,
    device: torch.device,
    kept: PartialLosses,
    progress: Progress,
    check: Callable[[float], None] | None,
) -> None:
    """Appends to `kept` what it lacks of all windows, part by part.

    Processes that share the windows take parts by turns.
    """
    world = kept.world
    done = int(world.tell(str(windows.whole(len(kept)))))
    done -= done % at_once if done < len(windows) else 0
    kept.truncate(int(windows.offsets[done]))
    progress(done, len(windows))
    parts = [
        (first, min(first + at_once, len(windows))) for first in range(done, len(windows), at_once)
    ]
    own = side_by_side(read, parts[world.rank :: world.size], device)
    nothing = np.empty(0, dtype=np.float32)
    for turn in range(0, len(parts), world.size):
        shared = parts[turn : turn + world.size]
        mine = next(own) if world.rank < len(shared) else nothing
        found = world.whole(torch.from_numpy(mine)).numpy()
        if turn == 0 and check is not None:
            check(float(found.mean()))
        kept.append(found)
        progress(shared[-1][1], len(windows))
    world.agree(True)  # the file is whole once all have come here


@torch.no_grad()
def _read(
    model: WindowModel,
    ids: NDArray[Any],
    windows: Windows,
    device: torch.device,
    part: tuple[int, int],
) -> NDArray[np.float32]:
    """The losses that windows [first, end) give, in their order."""
    first, end = part
    chosen = windows.losses_of(first, end)
    contexts, lengths = windows.contexts[chosen], windows.lengths[chosen]
    # Windows that need less are read on to the same length; what comes later changes nothing.
    places = windows.starts[first:end, None] + np.arange(int((contexts + lengths).max()))
    tokens_BT = torch.from_numpy(ids[np.minimum(places, len(ids) - 1)].astype(np.int64)).to(device)
    losses_BT = model.token_losses(tokens_BT).float().cpu().numpy()
    begins = np.cumsum(lengths) - lengths  # of each target among the losses of all their tokens
    columns = np.repeat(contexts - 1 - begins, lengths) + np.arange(int(lengths.sum()))
    rows = np.repeat(windows.rows_of(first, end), lengths)
    sums: NDArray[np.float64] = np.add.reduceat(losses_BT[rows, columns].astype(np.float64), begins)
    return sums.astype(np.float32)
