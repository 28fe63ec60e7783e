"""What a training step runs in: its number format, and batches staged ahead on a CUDA device."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from txlbench.config.train import Precision
from txlbench.data.streams import Batch
from txlbench.training.state import BatchSource


def resolve_precision(asked: Precision, device: torch.device) -> str:
    """Resolves auto: bf16 on devices that multiply bf16 matrices much faster, else fp32.

    That is: CUDA devices with bf16 units, and CPUs with AMX tiles. tf32 is fp32 where the device
    has no such units.
    """
    if asked == "tf32":
        has_units = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
        return "tf32" if has_units else "fp32"
    if asked != "auto":
        return asked
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if device.type == "cpu" and "amx_bf16" in _cpu_flags() else "fp32"


def autocast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """The context in which forward passes run; weights and positions stay float32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")


@contextmanager
def products(precision: str) -> Iterator[None]:
    """The context in which float32 products on a CUDA device are rounded to TF32, if asked for.

    An LSTM's products are cuDNN's, which has a switch of its own.
    """
    before, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if precision == "tf32" else before)
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cudnn.allow_tf32 = cudnn


def _cpu_flags() -> set[str]:
    """The processor's feature flags; empty where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())


class Staged:
    """Batches of a source on a device; while one is used the next is read and copied.

    Page-locked memory lets the copy go on beside the device's work. Which batch is given does not
    depend on what was read ahead.

    Args:
        on_host: batches are read ahead and stay there, for a model that reads ids on the host.
    """

    def __init__(self, batches: BatchSource, device: torch.device, on_host: bool = False) -> None:
        self.batches, self.device, self.on_host = batches, device, on_host
        self._thread = ThreadPoolExecutor(1, "staging")
        self._next: tuple[int, Future[Batch]] | None = None

    def __getitem__(self, step: int) -> Batch:
        ahead, self._next = self._next, None
        batch = ahead[1].result() if ahead and ahead[0] == step else self._staged(step)
        self._next = step + 1, self._thread.submit(self._staged, step + 1)
        return batch

    def close(self) -> None:
        """Waits for the batch that is being read."""
        self._thread.shutdown(cancel_futures=True)

    def _staged(self, step: int) -> Batch:
        batch = self.batches[step]
        return replace(batch, tokens=self._sent(batch.tokens), targets=self._sent(batch.targets))

    def _sent(self, tokens_BT: Tensor) -> Tensor:
        if self.device.type == "cuda":
            tokens_BT = tokens_BT.pin_memory()
        return tokens_BT if self.on_host else tokens_BT.to(self.device, non_blocking=True)


def staged(
    batches: BatchSource, device: torch.device, on_host: bool = False
) -> AbstractContextManager[BatchSource]:
    """`batches`, staged where the device is not the one that reads them; see `Staged`."""
    if device.type == "cpu":
        return nullcontext(batches)
    return closing(Staged(batches, device, on_host))
