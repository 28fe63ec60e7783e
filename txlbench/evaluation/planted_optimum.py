"""What the best model of `planted` would score where the evaluator streams, memory by memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.config.measurements import Measurement
from txlbench.data.planted_process import PlantedProcess
from txlbench.evaluation.lanes import lanes, pieces


def streaming_optimum(
    process: PlantedProcess, ids: NDArray[Any], measurement: Measurement, n_layer: int
) -> float:
    """The lowest possible mean loss, in nats, over the targets that `measurement` scores.

    Each target has the context that attention reaches at once: its segment so far and the memory
    before it. What a deep model may pass on from layer to layer beyond that is left out.

    Args:
        ids: token ids of the split.
        n_layer: the model's depth, which decides the lead-in of the exact mode.
    """
    found = list(_targets(len(ids), measurement, n_layer))
    positions, contexts = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return float(process.losses(ids, positions, contexts).mean())


def _targets(
    length: int, measurement: Measurement, n_layer: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Positions and contexts of the targets of one segment after the other."""
    for lane in lanes(length - 1, measurement, n_layer):
        for piece in pieces(lane, measurement):
            end = piece.start + piece.length + 1
            positions = np.arange(end - piece.scored, end)
            oldest = max(lane.start, piece.start - measurement.mem_len)
            contexts = positions - oldest
            if measurement.same_length:
                contexts = np.minimum(contexts, measurement.mem_len)
            yield positions, contexts
