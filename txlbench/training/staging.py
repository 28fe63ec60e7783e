"""The next batch on its way to a CUDA device while the present one is trained on."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from txlbench.training.loop import BatchSource


class Staged:
    """Batches of a source on a device; while one is used the next is read and copied.

    Page-locked memory lets the copy go on beside the device's work. Which batch is given does not
    depend on what was read ahead.
    """

    def __init__(self, batches: BatchSource, device: torch.device) -> None:
        self.batches, self.device = batches, device
        self._thread = ThreadPoolExecutor(1, "staging")
        self._next: tuple[int, Future[Any]] | None = None

    def __getitem__(self, step: int) -> Any:
        ahead, self._next = self._next, None
        batch = ahead[1].result() if ahead and ahead[0] == step else self._staged(step)
        self._next = step + 1, self._thread.submit(self._staged, step + 1)
        return batch

    def close(self) -> None:
        """Waits for what is being read."""
        self._thread.shutdown(cancel_futures=True)

    def _staged(self, step: int) -> Any:
        batch = self.batches[step]
        return replace(batch, tokens=self._sent(batch.tokens), targets=self._sent(batch.targets))

    def _sent(self, tokens_BT: Tensor) -> Tensor:
        if self.device.type == "cuda":
            tokens_BT = tokens_BT.pin_memory()
        return tokens_BT.to(self.device, non_blocking=True)


@contextmanager
def staged(batches: BatchSource, device: torch.device) -> Iterator[BatchSource]:
    """`batches`, staged where the device is not the one that reads them."""
    if device.type == "cpu":
        yield batches
        return
    ahead = Staged(batches, device)
    try:
        yield ahead
    finally:
        ahead.close()
