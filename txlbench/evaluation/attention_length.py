"""The paper's three columns of Table 6: PPL init, PPL best and attention length."""

from collections.abc import Mapping


def best_length(losses: Mapping[int, float]) -> int:
    """The attention length of the lowest loss; the shorter one of equals."""
    return min(losses, key=lambda length: (losses[length], length))


def shortest_length(losses: Mapping[int, float], tolerance: float) -> int:
    """The shortest attention length whose loss is within `tolerance` nats of the lowest.

    "The shortest possible attention length during evaluation to achieve the corresponding
    result" (Dai et al. 2019, caption of Table 6).
    """
    lowest = min(losses.values())
    return min(length for length, loss in losses.items() if loss <= lowest + tolerance)
