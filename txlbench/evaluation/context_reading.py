"""How windows are read: what each query sees, and how much is computed at once."""

from dataclasses import dataclass

import torch

from txlbench.config.base import AttentionSpan
from txlbench.config.model import ModelConfig
from txlbench.errors import UserError


@dataclass(frozen=True)
class Budget:
    """What is computed at once: tokens read, and attention scores of one layer."""

    tokens: int
    scores: int


SEGMENT = 200
"""Tokens at which a window is cut. Shorter segments have fewer scores of later keys to compute in
vain, but smaller products: from 150 to 250 was fastest for windows of 320 and of 1,000 tokens."""

BUDGETS = {"cpu": Budget(2**12, 2**22), "cuda": Budget(2**16, 2**27)}
"""By type of device, on a CPU for each thread. More is slower there: it outgrows the caches."""


@dataclass(frozen=True)
class Reading:
    """How windows are read, so that their values do not depend on where they are cut.

    Attributes:
        span: how the model looks back.
        longest: tokens of the longest window.
        segment: tokens of a window read at once; the next are read with memory.
        windows: windows read side by side.

    Raises:
        UserError: if windows are cut and memory does not reach back to their start: single
            losses would then depend on the cuts, and gains alternate with them.
    """

    span: AttentionSpan
    longest: int
    segment: int
    windows: int

    def __post_init__(self) -> None:
        cut = self.segment < self.longest
        if cut and not self.span.same_length and self.span.mem_len < self.longest:
            raise UserError(
                f"memory of {self.span.mem_len} does not cover a context of {self.longest}",
                "give --attention-length, or choose shorter contexts",
            )


def longest_context(config: ModelConfig, tgt_len: int) -> int | None:
    """The most predecessors a model can use, None without limit.

    Positions that restart at every segment are trained up to tgt_len and mean nothing beyond.
    """
    return None if config.has_coherent_memory else tgt_len


def choose_reading(
    config: ModelConfig,
    longest: int,
    device: torch.device,
    attention_length: int | None = None,
    clamp_len: int | None = None,
    windows: int | None = None,
) -> Reading:
    """The reading of windows of at most `longest` tokens that fills the device.

    Args:
        attention_length: keys each query sees, itself included; None for the whole window.
        windows: read side by side; None for as many as fit.

    Raises:
        UserError: for an attention length of a model without attention.
    """
    budget = BUDGETS.get(device.type, BUDGETS["cuda"])
    if config.is_recurrent:
        if attention_length is not None:
            raise UserError(
                f"--attention-length: {config.kind} has no attention", "drop the option"
            )
        return Reading(
            AttentionSpan(mem_len=longest),
            longest,
            longest,
            windows or _fit(budget.tokens, longest),
        )
    row = config.n_head * longest
    if windows is None:
        windows = min(_fit(budget.tokens, longest), _fit(budget.scores, row * longest))
    segments = max(round(longest / SEGMENT), -(-longest // _fit(budget.scores, row * windows)))
    return Reading(
        AttentionSpan(
            mem_len=attention_length or longest,
            clamp_len=clamp_len,
            same_length=attention_length is not None,
        ),
        longest,
        -(-longest // segments) if config.has_coherent_memory else longest,
        windows,
    )


def _fit(budget: int, size: int) -> int:
    return max(1, budget // size)
