"""The work that `bench` times: sizes, number formats and memories, the same on every machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from txlbench.config.counting import token_flops
from txlbench.config.model import ModelConfig

Work = Literal["train", "eval", "generate", "context_losses"]
VOCABULARY = 205
CONTEXTS = tuple(range(32, 321, 32))
"""Of context losses."""


@dataclass(frozen=True)
class Size:
    """A model, and how it is trained."""

    model: ModelConfig
    tgt_len: int
    batch_size: int


SIZES = {
    "small": Size(
        ModelConfig(n_layer=4, d_model=256, n_head=4, d_head=64, d_inner=1024, dropout=0.1),
        tgt_len=128,
        batch_size=16,
    ),
    "base": Size(
        ModelConfig(n_layer=12, d_model=512, n_head=8, d_head=64, d_inner=2048, dropout=0.1),
        tgt_len=512,
        batch_size=2,
    ),
}


@dataclass(frozen=True)
class Workload:
    """One thing that is timed.

    Attributes:
        dtype: fp32, or bf16 under autocast.
        units: of work that one repetition does: steps, segments, tokens or positions.
    """

    work: Work
    size: str
    dtype: str
    batch_size: int
    tgt_len: int
    mem_len: int
    units: int

    @property
    def model(self) -> ModelConfig:
        return SIZES[self.size].model

    @property
    def tokens(self) -> int:
        """Tokens of one repetition; of context losses, positions scored at every context."""
        return self.units * self.batch_size * self.tgt_len

    @property
    def flops(self) -> float | None:
        """Necessary ones for each of `tokens`; None for context losses, whose windows overlap."""
        if self.work == "context_losses":
            return None
        cached = self.work != "train"
        forward = token_flops(self.model, VOCABULARY, self.tgt_len, self.mem_len, cached)
        return forward if cached else 3 * forward


def workloads(sizes: Sequence[str]) -> Iterator[Workload]:
    """Training of each size; evaluation, generation and context losses of `small`."""
    for name in sizes:
        size = SIZES[name]
        for dtype in ("fp32", "bf16"):
            yield Workload("train", name, dtype, size.batch_size, size.tgt_len, size.tgt_len, 1)
    if "small" in sizes:
        for dtype in ("fp32", "bf16"):
            yield Workload("eval", "small", dtype, 10, 64, 640, 5)
        yield Workload("generate", "small", "fp32", 1, 1, 800, 40)
        yield Workload("generate", "small", "fp32", 1, 1, 3800, 20)
        yield Workload("context_losses", "small", "fp32", 1, 1, 0, 50)
