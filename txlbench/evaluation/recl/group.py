"""A group of models whose losses are compared, and what is asked of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.recl.walk import Walk, walk


@dataclass(frozen=True)
class Terms:
    """What decides RECL beside the losses.

    Attributes:
        shares: values of r, the share of tokens that are the hardest.
        threshold: relative gain that makes a step count.
        seed: of sign flips and resamples.
    """

    shares: tuple[float, ...] = (0.1, 0.5, 1.0)
    threshold: float = 0.01
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Group:
    """Losses of M models on the same T tokens at the same C contexts.

    Attributes:
        losses: [M, C, T], nats, float64.
        contexts: [C], ascending.
        positions: [T], ascending.
        longest: [M], the most predecessors that each model can use, None without limit.
        with_resets: by name, losses [C, T] of the same model trained with memory resets, so that
            short contexts are not unfamiliar to it; of those models of which there is one.
    """

    names: tuple[str, ...]
    losses: NDArray[np.float64]
    contexts: tuple[int, ...]
    positions: NDArray[np.int64]
    longest: tuple[int | None, ...]
    with_resets: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def walk(
        self, model: int, counts: NDArray[np.bool_], rows: Sequence[int] | None = None
    ) -> Walk:
        """Where the walk of one model ends over its steps [S], of contexts `rows` if not all."""
        contexts = self.contexts if rows is None else [self.contexts[row] for row in rows]
        return walk(counts, contexts, self.longest[model])
