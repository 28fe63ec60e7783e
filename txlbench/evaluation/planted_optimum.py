"""What the best model of `planted` would score where the evaluator streams, memory by memory."""

from typing import Any

from numpy.typing import NDArray

from txlbench.config.measurements import Measurement
from txlbench.data.planted_process import PlantedProcess
from txlbench.evaluation.seen_context import seen_context


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
    positions, contexts = seen_context(len(ids) - 1, measurement, n_layer)
    return float(process.losses(ids, positions, contexts).mean())
