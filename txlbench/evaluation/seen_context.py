"""How many predecessors a streaming evaluation gives each token that it scores."""

import numpy as np
from numpy.typing import NDArray

from txlbench.config.measurements import Measurement
from txlbench.evaluation.lanes import lanes, pieces


def seen_context(
    predictions: int, measurement: Measurement, n_layer: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions [N] of the scored tokens in the split, ascending, and the context [N] of each.

    A token sees its segment up to itself and the memory, with same_length mem_len of both. What
    states in memory may have kept of still earlier tokens is not counted.
    """
    positions, contexts, exact = [], [], measurement.same_length
    for lane in lanes(predictions, measurement, n_layer):
        for piece in pieces(lane, measurement):
            inside = np.arange(piece.length - piece.scored, piece.length)
            remembered = min(measurement.mem_len, piece.start - lane.start)
            positions.append(piece.start + inside + 1)
            seen = remembered + inside + 1
            contexts.append(np.minimum(seen, measurement.mem_len) if exact else seen)
    order = np.argsort(np.concatenate(positions))
    return np.concatenate(positions)[order], np.concatenate(contexts)[order]
