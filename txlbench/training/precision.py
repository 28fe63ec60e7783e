"""Which number format a training computes in: fp32, or bf16 autocast where it is fast."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch

from txlbench.config.train import Precision


def resolve_precision(asked: Precision, device: torch.device) -> str:
    """`asked`, or for auto bf16 on devices that multiply bf16 matrices much faster: fp32 else.

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
    """Inside, where tf32 is asked for, float32 products on CUDA devices are rounded to 10 bits."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _cpu_flags() -> set[str]:
    """The processor's feature flags; empty where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())
