"""Positions of the tokens whose context losses are taken: even stretches all over a split.

Within a stretch positions lie at t0 + s k with s dividing every difference of contexts, so that
one window gives the losses of several contexts.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from txlbench.errors import UserError

USUAL_COUNT = 10_000
"""So many tokens let a step with a true gain of .015 count in at least 88 tries of 100, and one of
.005 in at most 13 (r = .1, .5, 1; noise and more of it: docs/recl.md)."""
STRETCHES = 20
SHARED = 10
"""Windows of a stretch that several contexts share, for each that they do not: so spreading costs
at most a tenth more windows."""


@dataclass(frozen=True)
class Positions:
    """`count` predicted tokens, by index in the split: `first`, `first + step`, ...

    Attributes:
        stretches: equal parts, to within one token.
        gap: tokens left out between two stretches, beyond one step.
    """

    first: int
    step: int
    count: int
    stretches: int = 1
    gap: int = 0

    @property
    def array(self) -> NDArray[np.int64]:
        """[count], ascending."""
        number = np.arange(self.count, dtype=np.int64)
        return self.first + self.step * number + self.gap * (number * self.stretches // self.count)

    @property
    def key(self) -> dict[str, object]:
        """Identity of these positions as plain data; the same for one stretch as ever."""
        return {k: v for k, v in vars(self).items() if self.gap or k in ("first", "step", "count")}


@dataclass(frozen=True, eq=False)
class GivenPositions:
    """Positions [T] that somebody else chose, ascending."""

    array: NDArray[np.int64]

    @property
    def key(self) -> dict[str, object]:
        """Identity of these positions as plain data."""
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


def count_windows(contexts: NDArray[np.int64], positions: NDArray[np.int64]) -> int:
    """How many windows give the losses of all `positions` at all `contexts`."""
    return len(np.unique(positions[None, :] - np.unique(contexts)[:, None]))


def choose_positions(
    length: int,
    contexts: Sequence[int],
    count: int | None,
    period: int = 1,
    unit: str = "tokens",
) -> Positions:
    """`count` tokens of a split, each with at least the longest context before it.

    The step is the largest that fits of those that divide every difference of contexts: the
    more of the split is seen, and the fewer windows are needed. What room is left lies between up
    to twenty stretches, from the beginning to the end of the split.

    Args:
        length: tokens of the split.
        contexts: ascending, each at least 1.
        count: None for `USUAL_COUNT`, or as many as there are.
        period: the step has no divisor in common with it, so that the tokens are of every kind.
        unit: what the text is counted in, for messages.

    Raises:
        UserError: if the split has fewer such tokens.
    """
    longest = contexts[-1]
    available = length - longest
    if available < 1:
        raise UserError(
            f"--contexts: {longest} is beyond the split, which has {length:,} {unit}",
            "choose shorter contexts or another split",
        )
    if count is None:
        count = min(USUAL_COUNT, available)
    if count > available:
        raise UserError(
            f"--tokens {count}: only {available:,} {unit} of the split have {longest} predecessors",
            f"use at most {available}",
        )
    shared = math.gcd(*(longest - context for context in contexts))  # 0 for one context: any step
    largest = max(1, (available - 1) // max(1, count - 1))
    steps = range(min(shared, largest) if shared else largest, 0, -1)
    sharing = (step for step in steps if shared % step == 0 and math.gcd(step, period) == 1)
    step = next(sharing)
    unshared = (longest - contexts[0]) // step
    stretches = max(1, min(STRETCHES, count // (SHARED * unshared or 1)))
    room = available - 1 - step * (count - 1)
    gap = room // (stretches - 1) // step * step if stretches > 1 else 0
    return Positions(longest, step, count, stretches if gap else 1, gap)
