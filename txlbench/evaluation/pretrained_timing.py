"""Times a new token of a pretrained model: in a window read anew, or with transformers' cache."""

import torch

from txlbench.errors import UserError
from txlbench.evaluation.timing import AT_LEAST, Task
from txlbench.models.pretrained.causal_lm import CausalModel


def _tokens(vocabulary_size: int, shape: tuple[int, int], device: torch.device) -> torch.Tensor:
    """Random ids: speed does not depend on them."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(vocabulary_size, shape, generator=generator).to(device)


def pretrained_window_task(
    model: CausalModel, vocabulary_size: int, batch_size: int, length: int, device: torch.device
) -> Task:
    """The newest `length` tokens are read anew for one prediction."""
    tokens_BT = _tokens(vocabulary_size, (batch_size, length), device)

    def run() -> None:
        model.next_logits(tokens_BT)

    return Task(batch_size, run)


def pretrained_cached_task(
    model: CausalModel, vocabulary_size: int, batch_size: int, length: int, device: torch.device
) -> Task:
    """One token a pass beside a cache that holds `length` tokens at first.

    Raises:
        UserError: if the model gives no cache.
    """
    tokens_BT = _tokens(vocabulary_size, (batch_size, length), device)
    cache = model.read(tokens_BT, None)
    if cache is None:
        raise UserError("speed: this model gives no cache", "leave it out")
    newest_B1 = tokens_BT[:, -1:]

    def run() -> None:
        nonlocal cache
        for _ in range(AT_LEAST):
            cache = model.read(newest_B1, cache)
        model.drop_newest(cache, AT_LEAST)

    return Task(batch_size * AT_LEAST, run)
