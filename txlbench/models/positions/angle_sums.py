"""Scores of a single query at every distance from sums of angles: no row a distance is read.

With W_kR's columns for sines and cosines, the query's score at distance d is a sum over the
frequencies f of the sinusoid (`positions.sinusoid`)::

    s(d) = sum_f a_f sin(d f) + b_f cos(d f) = Re sum_f (b_f - i a_f) e^{i d f}

At d = STEP m + n the factor is e^{i STEP m f} e^{i n f}: the query is turned by each STEP m, and
one small table of e^{i n f} serves them all. A long memory's projected R would be read from main
memory for every token, S x H x K numbers a layer; this stays in the processor's cache.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from txlbench.models.positions.sinusoid import frequencies

STEP = 128
"""Distances a turn: the table of n and, up to some thousand keys, the turns stay small."""


@dataclass(frozen=True)
class Angles:
    """The sinusoids of STEP m and of n, each computed in float64 and rounded once.

    Attributes:
        turns_MF: e^{i STEP m f} of m = M-1, ..., 0, complex.
        table_CN: over (f, part) cos(n f) and -sin(n f), of n = STEP-1, ..., 0.
    """

    turns_MF: Tensor
    table_CN: Tensor

    @classmethod
    def reaching(cls, keys: int, d_model: int, like: Tensor) -> "Angles":
        """For the distances of that many keys, in the dtype of `like`."""
        each = frequencies(d_model, like.device)
        turns = _descending(-(-keys // STEP), like) * STEP
        turned = torch.polar(torch.ones_like(each), turns[:, None] * each)
        angles = _descending(STEP, like)[:, None] * each
        table = torch.stack([angles.cos(), -angles.sin()], dim=-1).flatten(1)
        return cls(turned.to(like.dtype.to_complex()), table.to(like.dtype).T.contiguous())


@dataclass(frozen=True)
class AngleSums:
    """How one layer scores the distances S-1, ..., 0 for a single query of a single stream.

    Attributes:
        weight_HKC: W_kR, its columns in pairs (b, -a) of each frequency.
        keys: S.
    """

    weight_HKC: Tensor
    angles: Angles
    keys: int

    def newest(self, keys: int) -> "AngleSums":
        """The sums of the `keys` shortest distances."""
        turns = -(-keys // STEP)
        angles = replace(self.angles, turns_MF=self.angles.turns_MF[-turns:])
        return replace(self, angles=angles, keys=keys)

    def position(self, query_HBTK: Tensor) -> Tensor:
        """Scores [H, 1, 1, S], as `Table.position` gives them."""
        heads, size, width = self.weight_HKC.shape
        query_H1K = query_HBTK.view(heads, 1, size)
        factors = torch.bmm(query_H1K, self.weight_HKC).view(heads, 1, width // 2, 2)
        turned_HMF = torch.view_as_complex(factors) * self.angles.turns_MF
        scores_HMN = torch.view_as_real(turned_HMF).flatten(2) @ self.angles.table_CN
        return scores_HMN.view(heads, 1, 1, -1)[..., -self.keys :]


def columns_in_pairs(weight_HKD: Tensor) -> Tensor:
    """W_kR as `AngleSums` has it: from its columns of all sines, then of all cosines."""
    sines = -(-weight_HKD.shape[-1] // 2)
    a, b = weight_HKD[..., :sines], weight_HKD[..., sines:]
    b = pad(b, (0, sines - b.shape[-1]))  # an odd width has no last cosine
    return torch.stack([b, -a], dim=-1).flatten(-2)


def _descending(count: int, like: Tensor) -> Tensor:
    return torch.arange(count - 1, -1, -1, dtype=torch.float64, device=like.device)
