"""Which tokens context losses are taken of: an even grid, whose step lets windows be shared."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.errors import UserError

USUAL_COUNT = 10_000
"""So many tokens resolve a gain of .01 at r = 0.1 in more than nine tries of ten."""


@dataclass(frozen=True)
class Positions:
    """Predicted tokens `first`, `first + step`, ...: `count` of them, by index in the split."""

    first: int
    step: int
    count: int

    @property
    def array(self) -> NDArray[np.int64]:
        return self.first + self.step * np.arange(self.count, dtype=np.int64)

    @property
    def key(self) -> dict[str, Any]:
        """What tells them from others, as plain data."""
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class GivenPositions:
    """Those that somebody else chose: [T], ascending."""

    array: NDArray[np.int64]

    @property
    def key(self) -> dict[str, Any]:
        return {"given": hashlib.sha256(self.array.tobytes()).hexdigest()}


def check_given(positions: GivenPositions, length: int, contexts: Sequence[int]) -> None:
    """Refuses (UserError) positions that are not in a split, or lack predecessors in it."""
    first, last = int(positions.array[0]), int(positions.array[-1])
    if last >= length:
        raise UserError(
            f"position {last:,} of the loss file is beyond the split, which has {length:,} tokens",
            "positions are indices of predicted tokens in the split",
        )
    if first < contexts[-1]:
        raise UserError(
            f"position {first:,} of the loss file has no {contexts[-1]:,} predecessors",
            f"leave out positions below {contexts[-1]:,}, or give shorter --contexts",
        )


def choose_positions(
    length: int, contexts: Sequence[int], count: int | None, period: int = 1
) -> Positions:
    """`count` tokens of a split, each with at least the longest context before it.

    The step is the largest that fits of those that divide every difference of contexts: the
    more of the split is seen, and the fewer windows are needed.

    Args:
        length: tokens of the split.
        contexts: ascending, each at least 1.
        count: None for `USUAL_COUNT`, or as many as there are.
        period: the step has no divisor in common with it, so that the tokens are of every kind.

    Raises:
        UserError: if the split has fewer such tokens.
    """
    longest = contexts[-1]
    available = length - longest
    if available < 1:
        raise UserError(
            f"--contexts: {longest} is beyond the split, which has {length:,} tokens",
            "choose shorter contexts or another split",
        )
    if count is None:
        count = min(USUAL_COUNT, available)
    if count > available:
        raise UserError(
            f"--tokens {count}: only {available:,} tokens of the split have {longest} predecessors",
            f"use at most {available}",
        )
    shared = math.gcd(*(longest - context for context in contexts))  # 0 for one context: any step
    largest = max(1, (available - 1) // max(1, count - 1))
    steps = range(min(shared, largest) if shared else largest, 0, -1)
    sharing = (step for step in steps if shared % step == 0 and math.gcd(step, period) == 1)
    return Positions(longest, next(sharing), count)
