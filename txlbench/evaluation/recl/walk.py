"""The walk from the first context on for as long as a step counts; where it stops is the RECL."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Walk:
    """Where a model's walk ended.

    Attributes:
        length: the relative effective context length, never above what the model can use.
        capped: whether the last context was reached, so that a longer list might give more.
        limited_by: "longest" where the model can use no more.
    """

    length: int
    capped: bool
    limited_by: Literal["longest"] | None


def walk(counts: NDArray[np.bool_], contexts: Sequence[int], longest: int | None) -> Walk:
    """The walk of a model whose steps [S] count or not."""
    steps = int(np.logical_and.accumulate(counts).sum())
    reached = contexts[steps]
    is_limited = longest is not None and reached >= longest
    return Walk(
        length=limited(reached, longest),
        capped=steps == len(contexts) - 1,
        limited_by="longest" if is_limited else None,
    )


def limited(length: int, longest: int | None) -> int:
    """`length`, or the most that the model can use."""
    return length if longest is None else min(length, longest)
