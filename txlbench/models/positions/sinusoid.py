"""Sinusoids of positions and distances, exact enough to tell 513 from 514."""

from functools import lru_cache

import torch
from torch import Tensor


def sinusoid(positions: Tensor, d_model: int, dtype: torch.dtype) -> Tensor:
    """Rows [sin(p f), cos(p f)] in halves, as the official code (Vaswani et al. 2017, 3.5).

    Computed in float64 and rounded once, never below float32: in bfloat16 distances collapse.

    Args:
        positions: [P], any integer or float dtype.
        d_model: width; an odd one drops the last cosine.
        dtype: the parameters' dtype.

    Returns:
        [P, d_model] on the device of `positions`.
    """
    angles = positions.double()[:, None] * frequencies(d_model, positions.device)
    rows = torch.cat([angles.sin(), angles.cos()], dim=-1)[:, :d_model]
    return rows.to(torch.promote_types(dtype, torch.float32))


def frequencies(d_model: int, device: torch.device) -> Tensor:
    """Of the sines, and of the cosines, in float64: [ceil(d_model / 2)]."""
    halves = torch.arange(0, d_model, 2, dtype=torch.float64, device=device)
    return 10000.0 ** (-halves / d_model)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def cached_sinusoid(
    first: int, last: int, clamp_len: int | None, d_model: int, dtype: torch.dtype, device: str
) -> Tensor:
    """The sinusoids of positions `first`, ..., `last` in that order, kept between calls."""
    return _kept(first, last, clamp_len, d_model, dtype, device)


@lru_cache(maxsize=64)
def _kept(
    first: int, last: int, clamp_len: int | None, d_model: int, dtype: torch.dtype, device: str
) -> Tensor:
    step = 1 if last >= first else -1
    positions = torch.arange(first, last + step, step, device=device)
    if clamp_len is not None:
        positions = positions.clamp(max=clamp_len)
    return sinusoid(positions, d_model, dtype)
