"""Accelerators by name: peak rates and memory, as their vendor's data sheets give them.

Rates are dense ones: where a sheet gives those with sparsity, half of them. bf16 products sum in
float32. A card without bf16 units trains in float32 with `precision: auto`, as it would here.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from txlbench.errors import UserError, suggestion

Rate = Literal["fp32", "tf32", "bf16"]
UTILISATION = 0.4
"""Share of the peak rate that well-tuned training of transformers reaches (30 to 50 % are usual:
Narayanan et al. 2021, table 1). Small models and float32 reach other shares: `--probe` there."""


@dataclass(frozen=True)
class Accelerator:
    """One device.

    Attributes:
        teraflops: peak 10^12 FLOP/s by number format; without bf16 or tf32 units, not listed.
        memory_gb: 10^9 bytes.
        source: the vendor's document.
    """

    name: str
    teraflops: MappingProxyType[str, float]
    memory_gb: float
    source: str

    def rate(self, precision: str) -> tuple[str, float]:
        """The format that `train.precision` comes to on this device, and its peak in FLOP/s."""
        wanted = "bf16" if precision == "auto" else precision
        found = wanted if wanted in self.teraflops else "fp32"
        return found, self.teraflops[found] * 1e12


def _device(name: str, memory_gb: float, source: str, **rates: float) -> Accelerator:
    return Accelerator(name, MappingProxyType(rates), memory_gb, source)


ACCELERATORS = {
    each.name: each
    for each in (
        _device("v100", 32, "NVIDIA V100 data sheet (SXM2)", fp32=15.7),
        _device("t4", 16, "NVIDIA T4 data sheet", fp32=8.1),
        _device("a100", 80, "NVIDIA A100 data sheet (SXM)", fp32=19.5, tf32=156, bf16=312),
        _device("a100-40gb", 40, "NVIDIA A100 data sheet (SXM)", fp32=19.5, tf32=156, bf16=312),
        _device("h100", 80, "NVIDIA H100 data sheet (SXM)", fp32=67, tf32=494.5, bf16=989.5),
        _device("h200", 141, "NVIDIA H200 data sheet (SXM)", fp32=67, tf32=494.5, bf16=989.5),
        _device("l40s", 48, "NVIDIA L40S data sheet", fp32=91.6, tf32=183, bf16=362),
        _device("rtx3090", 24, "NVIDIA Ampere GA102 white paper", fp32=35.6, tf32=35.6, bf16=71),
        _device("rtx4090", 24, "NVIDIA Ada white paper", fp32=82.6, tf32=82.6, bf16=165.2),
    )
}


def accelerators_named(names: str) -> tuple[Accelerator, ...]:
    """Those of a list divided by commas.

    Raises:
        UserError: for a name that is not known, naming the nearest.
    """
    wanted = [name.strip().lower() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in ACCELERATORS:
            raise UserError(f"--accelerator {name}: unknown", suggestion(name, ACCELERATORS))
    return tuple(ACCELERATORS[name] for name in dict.fromkeys(wanted))
