"""The processes that train one run together, and what they tell each other.

Each holds all weights and its rows of every batch: what they compute differs by rows alone. So
gradients are summed once a step, and whatever decides how a run goes on is agreed on by all.
"""

import atexit
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed, nn

from txlbench.machine import torchrun_processes

BUCKET_BYTES = 32 * 2**20
"""Gradients sent at once: one part is on its way while the next is laid end to end."""

PATIENCE = timedelta(hours=1)
"""How long a process waits for the others, one of which may be writing to a slow disk."""

T = TypeVar("T")


class RankLost(Exception):
    """Another process of the world has ended, or cannot be reached."""


@dataclass(frozen=True)
class World:
    """One of `size` processes that share a run; alone by default, and then nothing is sent.

    Attributes:
        rank: 0 for the process that writes, 1, 2, ... for the others.
        size: processes.
    """

    rank: int = 0
    size: int = 1

    @property
    def writes(self) -> bool:
        """Whether this is the process that writes the run's files."""
        return self.rank == 0

    def own(self, rows: T) -> T:
        """This process's part of `rows`, a tensor or an array: of equal parts along dimension 0."""
        if self.size == 1:
            return rows
        whole: Any = rows
        each = len(whole) // self.size
        part: T = whole[self.rank * each : (self.rank + 1) * each]
        return part

    def sum_gradients(
        self, parameters: Iterable[nn.Parameter], backward: Callable[[], object], *sums: Tensor
    ) -> None:
        """Replaces gradients, and the scalars `sums`, by their sums over all processes.

        Those of later layers are on their way while `backward`, the last to add to them, makes
        those of earlier ones. A parameter without a gradient has none in any process.
        """
        if self.size == 1:
            backward()
            return
        sending = _GradientSums(parameters, lambda flat: self._all_reduce(flat, True))
        sending.during(backward)
        sending.finish(sums)

    def total(self, *arrays: NDArray[Any]) -> tuple[NDArray[Any], ...]:
        """The sums of arrays over all processes, computed in float64, in the dtype they had."""
        if self.size == 1:
            return arrays
        flat = torch.from_numpy(np.concatenate([each.ravel() for each in arrays]).astype(float))
        self._all_reduce(flat)
        parts = np.split(flat.numpy(), np.cumsum([each.size for each in arrays])[:-1])
        return tuple(
            part.reshape(each.shape).astype(each.dtype)
            for part, each in zip(parts, arrays, strict=True)
        )

    def agree(self, *asked: bool) -> tuple[bool, ...]:
        """For each question whether any process says yes."""
        if self.size == 1:
            return asked
        return tuple(map(bool, self.total(*(np.array(each) for each in asked))))

    def whole(self, rows: Tensor) -> Tensor:
        """The rows of all processes in order of rank; each may have another number of them."""
        if self.size == 1:
            return rows
        lengths = np.zeros(self.size, dtype=np.int64)
        lengths[self.rank] = len(rows)
        (lengths,) = self.total(lengths)
        padded = rows.new_zeros(int(lengths.max()), *rows.shape[1:])
        padded[: len(rows)] = rows
        found = [torch.empty_like(padded) for _ in range(self.size)]
        _attempt(lambda: distributed.all_gather(found, padded))
        parts = zip(found, lengths.tolist(), strict=True)
        return torch.cat([part[:length] for part, length in parts])

    def tell(self, text: str) -> str:
        """The text that the writing process gives, in every process."""
        if self.size == 1:
            return text
        content = np.frombuffer(text.encode() if self.writes else b"", dtype=np.uint8)
        return bytes(self.whole(torch.from_numpy(content.copy())).tolist()).decode()

    def leave(self) -> None:
        """Ends the connection to the others."""
        if self.size > 1:
            distributed.destroy_process_group()

    def _all_reduce(self, flat: Tensor, asynchronous: bool = False) -> Any:
        return _attempt(lambda: distributed.all_reduce(flat, async_op=asynchronous))


ALONE = World()


def join(device: torch.device) -> World:
    """The world that the environment tells of, as torchrun sets it: RANK, WORLD_SIZE and more.

    Tensors on a CPU travel by Gloo, those on a CUDA device by NCCL.
    """
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    _attempt(lambda: distributed.init_process_group(backend, timeout=PATIENCE))
    return World(distributed.get_rank(), distributed.get_world_size())


def outer_world(device: torch.device) -> World:
    """The processes of this command that an outer torchrun has started; this one alone without."""
    if torchrun_processes() == 1:
        return ALONE
    if distributed.is_initialized():
        return World(distributed.get_rank(), distributed.get_world_size())
    world = join(device)
    atexit.register(world.leave)  # threads of its own that still run then would abort the process
    return world


class _GradientSums:
    """Gradients on their way: buckets are sent in one order, the same in every process.

    A bucket goes once its last gradient is there and the one before has gone.
    """

    def __init__(
        self, parameters: Iterable[nn.Parameter], send: Callable[[Tensor], distributed.Work]
    ) -> None:
        weights = [weight for weight in parameters if weight.requires_grad and weight.numel()]
        self.buckets = list(_buckets(weights[::-1]))  # gradients come from the last layer on
        self.send = send
        self.missing = [len(bucket) for bucket in self.buckets]
        self.next = 0
        self.sent: list[tuple[Sequence[Tensor], Tensor, distributed.Work]] = []

    def during(self, backward: Callable[[], object]) -> None:
        """Sends what is complete while `backward` goes on."""
        hooks = [
            weight.register_post_accumulate_grad_hook(partial(self._arrived, number))
            for number, bucket in enumerate(self.buckets)
            for weight in bucket
        ]
        try:
            backward()
        finally:
            for hook in hooks:
                hook.remove()

    def _arrived(self, number: int, _: Tensor) -> None:
        self.missing[number] -= 1
        while self.next < len(self.buckets) and not self.missing[self.next]:
            self._send_next()

    def _send_next(self) -> None:
        self._send([weight.grad for weight in self.buckets[self.next] if weight.grad is not None])
        self.next += 1

    def finish(self, sums: Sequence[Tensor]) -> None:
        """Sends the rest, and puts sums in the place of gradients and of `sums`."""
        while self.next < len(self.buckets):
            self._send_next()
        self._send(sums)
        for tensors, flat, work in self.sent:
            _attempt(work.wait)
            for tensor, part in zip(tensors, flat.split([t.numel() for t in tensors]), strict=True):
                tensor.set_(part.view_as(tensor))

    def _send(self, tensors: Sequence[Tensor]) -> None:
        if tensors:
            flat = torch.cat([tensor.flatten() for tensor in tensors])
            self.sent.append((tensors, flat, self.send(flat)))


def _buckets(weights: Sequence[nn.Parameter]) -> Iterable[list[nn.Parameter]]:
    """Parameters of one dtype, some `BUCKET_BYTES` together."""
    for dtype in dict.fromkeys(weight.dtype for weight in weights):
        bucket: list[nn.Parameter] = []
        for weight in (each for each in weights if each.dtype == dtype):
            bucket.append(weight)
            if sum(each.nbytes for each in bucket) >= BUCKET_BYTES:
                yield bucket
                bucket = []
        if bucket:
            yield bucket


def _attempt(collective: Callable[[], T]) -> T:
    """What `collective` gives; RankLost if another process is not there for it."""
    try:
        return collective()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise RankLost(" ".join(str(error).split())[:300]) from error
