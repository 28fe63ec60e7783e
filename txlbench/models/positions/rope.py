"""Rotary positions (RoPE, Su et al. 2021), and what is done to them beyond the trained length."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from txlbench.config.base import AttentionSpan, RopeScaling
from txlbench.models.positions.encoding import Encoding
from txlbench.models.positions.tables import BASE, frequencies


class RopeEncoding(Encoding):
    """(R_i q_i) . (R_j k_j) / sqrt(d_head), R_p turning pair f by p 10000 ** (-2 f / d_head).

    R_i^T R_j depends on i - j alone, so that it does not matter where positions are counted from:
    a key is turned once, when it is first met, and a cache keeps it so. Number f is paired with
    number f + d_head / 2, as in GPT-NeoX and Llama (the paper pairs 2 f and 2 f + 1; weights differ
    by their order only); the last number of an odd head is not turned. Nothing is learned.
    """

    def place(self, layer: int, states_HBLK: Tensor, first: int, span: AttentionSpan) -> Tensor:  # noqa: ARG002
        """Queries or keys turned by their positions, in float32 at least."""
        length, size = states_HBLK.shape[-2:]
        half, device = size // 2, str(states_HBLK.device)
        exact = torch.promote_types(states_HBLK.dtype, torch.float32)
        cos_LF, sin_LF = cached_rotation(first, length, 2 * half, span.rope, exact, device)
        x, y = (part.to(exact) for part in states_HBLK[..., : 2 * half].split(half, dim=-1))
        turned = [x * cos_LF - y * sin_LF, y * cos_LF + x * sin_LF]
        rest = states_HBLK[..., 2 * half :]
        return torch.cat([part.to(states_HBLK.dtype) for part in turned] + [rest], dim=-1)


@lru_cache(maxsize=32)
def cached_rotation(
    first: int, length: int, size: int, scaling: RopeScaling | None, dtype: torch.dtype, device: str
) -> tuple[Tensor, Tensor]:
    """Cosines and sines [L, K / 2] of positions first, first + 1, ..., kept between calls.

    Angles are computed in float64 and rounded once: in float32 they drift at far positions.
    """
    with torch.inference_mode(mode=False):  # else training could not use what evaluation made
        each, stretch = scaled_frequencies(size, scaling, torch.device(device))
        positions = torch.arange(first, first + length, device=device, dtype=torch.float64)
        angles = positions[:, None] * each
        return (angles.cos() * stretch).to(dtype), (angles.sin() * stretch).to(dtype)


def scaled_frequencies(
    size: int, scaling: RopeScaling | None, device: torch.device
) -> tuple[Tensor, float]:
    """Frequencies in float64 [K / 2], and what cosines and sines are multiplied with.

    With the factor s and D = `size`:

    - pi, position interpolation (Chen et al. 2023): all over s.
    - ntk (bloc97 2023): the base times s ** (D / (D - 2)), so that the lowest frequency is over s
      and the highest as it was.
    - yarn (Peng et al. 2023): over s where fewer than SLOW turns fit the trained length, as they
      were where more than FAST do, blended between; cosines and sines times 0.1 ln s + 1. The
      blend's ends are rounded to whole dimensions, as in its authors' code.
    """
    each = frequencies(size, device)
    if scaling is None:
        return each, 1.0
    factor = scaling.factor
    if scaling.kind == "pi":
        return each / factor, 1.0
    if scaling.kind == "ntk":
        power = size / max(size - 2, 1)
        halves = torch.arange(0, size, 2, dtype=torch.float64, device=device)
        return (BASE * factor**power) ** (-halves / size), 1.0
    first, last = (_dimension(turns, size, scaling.trained) for turns in (FAST, SLOW))
    low, high = max(math.floor(first), 0), min(math.ceil(last), size - 1)
    places = torch.arange(size // 2, dtype=torch.float64, device=device)
    share = ((places - low) / max(high - low, 1e-3)).clamp(0, 1)
    return each / factor * share + each * (1 - share), 0.1 * math.log(factor) + 1


FAST, SLOW = 32, 1
"""YaRN's beta_fast and beta_slow: turns within the trained length."""


def _dimension(turns: int, size: int, trained: int) -> float:
    """The frequency's number, a fraction too, that turns so often within the trained length."""
    return size * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(BASE))
