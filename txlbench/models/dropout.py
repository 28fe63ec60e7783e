"""Dropout whose masks are drawn many at a time on a CPU.

PyTorch draws a CPU mask one Bernoulli number after the other, which took a third of a training
step. Here four 16-bit numbers come from every 64 random bits; the rate is exact to 2 ** -17.

Where processes share a batch, each draws the masks of all its rows and takes its own: so a stream
meets the same masks on however many it trains.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import dropout

from txlbench.config.model import ModelConfig
from txlbench.seeding import bit_source

_share = (0, 1)


@contextmanager
def rows_shared(rank: int, size: int) -> Iterator[None]:
    """Inside, batches are the part number `rank` of `size` of those that masks are drawn for."""
    global _share
    before, _share = _share, (rank, size)
    try:
        yield
    finally:
        _share = before


def keep_mask(like: Tensor, rate: float, batch_dim: int | None = 0) -> Tensor:
    """A mask of `like`'s shape and dtype: 0 with probability `rate`, else 1 / (1 - rate).

    Args:
        batch_dim: as of `kept`.
    """
    return _scaled(_numbers(like.shape, batch_dim), rate, like.dtype)


def kept(shape: tuple[int, ...], rate: float, batch_dim: int | None = 0) -> Tensor:
    """A mask as int8: 0 with probability `rate`, else 1.

    Args:
        batch_dim: the dimension of streams, or of tokens stream by stream; None where all streams
            share the mask.
    """
    return _above(_numbers(shape, batch_dim), rate)


def _numbers(shape: tuple[int, ...], batch_dim: int | None) -> NDArray[np.int16]:
    """A random 16-bit number for each entry of a mask."""
    rank, sharing = (0, 1) if batch_dim is None else _share
    size = math.prod(shape) * sharing
    words = bit_source().random_raw(-(-size // 4))
    numbers = words.view(np.int16)[:size]
    if sharing > 1:
        numbers = numbers.reshape(math.prod(shape[:batch_dim]), sharing, -1)[:, rank]
    return numbers.reshape(shape)


def _above(numbers: NDArray[np.int16], rate: float) -> Tensor:
    """The mask of such numbers as int8."""
    # Compared by numpy and cast from bytes: both are several times faster than PyTorch's
    # 16-bit comparison and its cast from bool.
    threshold = min(round(rate * 2**16) - 2**15, 2**15 - 1)
    above = numbers >= np.int16(threshold)
    return torch.from_numpy(above.view(np.int8))


def _scaled(numbers: NDArray[np.int16], rate: float, dtype: torch.dtype) -> Tensor:
    """The mask of such numbers as 0 and 1 / (1 - rate)."""
    return _above(numbers, rate).to(dtype).mul_(1 / (1 - rate))


PART = 2**17
"""Entries that are worked on at once where several steps follow each other, so that they stay in
the cache between these."""


def _parts(values_NF: Tensor) -> Iterator[slice]:
    """Rows of about `PART` entries at a time."""
    rows = max(1, PART // values_NF.shape[1])
    return (slice(first, first + rows) for first in range(0, len(values_NF), rows))


def _drawn_here(values: Tensor) -> bool:
    """Whether masks are drawn by this module instead of by PyTorch."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


class Dropout(nn.Module):
    """Zeroes entries with probability `rate` in training and scales the others by 1/(1-rate).

    Args:
        batch_dim: the dimension of what is dropped that holds the streams; None for what they
            share, as weights or positions, which are then dropped alike wherever streams are.
    """

    def __init__(self, rate: float, batch_dim: int | None = 0) -> None:
        super().__init__()
        self.rate = rate
        self.batch_dim = batch_dim

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return values
        return self.drop(values)

    def drop(self, values: Tensor) -> Tensor:
        """Multiplies `values` with a new mask."""
        if not _drawn_here(values):
            return dropout(values, self.rate)
        return values * keep_mask(values, self.rate, self.batch_dim)

    def after_relu(self, values_NF: Tensor, segment: torch.Size) -> Tensor:
        """The ReLU of `values_NF`, dropped, as [B, T, F]; may write into `values_NF`.

        A single product should follow, whose gradient is written into.

        Args:
            segment: B and T, whose product is N.
        """
        if not self.training or self.rate == 0 or not _drawn_here(values_NF):
            made_NF = values_NF.relu() if torch.is_grad_enabled() else values_NF.relu_()
            return self(made_NF.unflatten(0, segment))
        dropped: Tensor = DroppedRelu.apply(values_NF, self.rate)  # type: ignore[no-untyped-call]
        return dropped.unflatten(0, segment)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"


class DroppedRelu(torch.autograd.Function):
    """ReLU and dropout in place: what is not positive afterwards got no gradient in either.

    The gradient is made in that of the output, which the product that follows computed for this.
    """

    @staticmethod
    def forward(ctx: Any, values_NF: Tensor, rate: float) -> Tensor:
        ctx.mark_dirty(values_NF)
        ctx.scale = 1 / (1 - rate)
        numbers = _numbers(values_NF.shape, 0)
        for rows in _parts(values_NF):
            mask = _scaled(numbers[rows], rate, values_NF.dtype)
            values_NF[rows].clamp_(min=0).mul_(mask)
        ctx.save_for_backward(values_NF)
        return values_NF

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NF: Tensor) -> tuple[Tensor, None]:
        (dropped_NF,) = ctx.saved_tensors
        pass_on = torch.ops.aten.threshold_backward.grad_input
        for rows in _parts(grad_NF):
            part = grad_NF[rows]
            pass_on(part, dropped_NF[rows], 0, grad_input=part).mul_(ctx.scale)
        return grad_NF, None


class VariationalDropout(Dropout):
    """One mask for all tokens of a segment: [B, 1, D] (Gal & Ghahramani 2016)."""

    def drop(self, values_BTD: Tensor) -> Tensor:
        return values_BTD * super().drop(torch.ones_like(values_BTD[:, :1]))

    def after_relu(self, values_NF: Tensor, segment: torch.Size) -> Tensor:
        dropped: Tensor = self(values_NF.relu().unflatten(0, segment))
        return dropped


def dropout_for(config: ModelConfig) -> Dropout:
    """Dropout at the model's rate, variational where the configuration says so."""
    kind = VariationalDropout if config.variational else Dropout
    return kind(config.dropout)
