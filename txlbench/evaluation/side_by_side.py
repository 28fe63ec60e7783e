"""Independent passes of a model on all cores, one thread each."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")


def side_by_side(
    compute: Callable[[Part], Result], parts: Iterable[Part], device: torch.device
) -> Iterator[Result]:
    """What `compute` makes of each part, in order.

    On a CPU as many parts are computed at once as PyTorch has threads, each by one of them: small
    products gain little from a second thread, and its waiting costs other processes theirs.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1:
        yield from map(compute, parts)
        return
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield from pool.map(compute, parts)
    finally:
        torch.set_num_threads(threads)
