"""Reads windows that were made for a probe, each for the losses of its last tokens.

Windows may differ in length: they are read in order of length, several at once, and what was
computed is kept in that order, so that an interrupted pass goes on.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from txlbench.errors import UserError
from txlbench.evaluation.context_losses import (
    GreedyModel,
    PartialLosses,
    Progress,
    WindowModel,
    side_by_side,
)

TokenWindows = Sequence[NDArray[np.int64]]
"""Token ids of each window, the predicted ones at its end."""


def last_losses(
    open_model: Callable[[], tuple[WindowModel, int]],
    windows: TokenWindows,
    scored: int,
    kept: PartialLosses,
    *,
    with_hits: bool = False,
    device: torch.device,
    progress: Progress,
) -> NDArray[np.float32]:
    """[W, scored, 1 or 2]: losses in nats of the last `scored` tokens of each window.

    Args:
        open_model: gives the model and how many windows it reads at once; called only if
            something is left to compute.
        with_hits: also tells, as 1 or 0, whether a token was the likeliest.

    Raises:
        UserError: if the model does not tell that.
    """
    order = np.argsort([len(each) for each in windows], kind="stable")
    size = scored * (1 + with_hits)
    done = min(len(kept) // size, len(windows))
    kept.truncate(done * size)
    progress(done, len(windows))
    if done < len(windows):
        model, at_once = open_model()
        if with_hits and not isinstance(model, GreedyModel):
            raise UserError(
                "the model does not tell which tokens it would have chosen",
                "give it a method token_predictions",
            )
        bounds = [*range(done, len(windows), at_once), len(windows)]
        parts = [[windows[each] for each in order[a:b]] for a, b in pairwise(bounds)]
        read = partial(_read, model, scored, with_hits, device)
        for found in side_by_side(read, parts, device):
            kept.append(found)
            done += len(found)
            progress(done, len(windows))
    losses = np.empty((len(windows), scored, 1 + with_hits), dtype=np.float32)
    losses[order] = kept.read().reshape(losses.shape)
    return losses


@torch.no_grad()
def _read(
    model: Any, scored: int, with_hits: bool, device: torch.device, windows: TokenWindows
) -> NDArray[np.float32]:
    lengths = np.array([len(window) for window in windows])
    tokens = np.zeros((len(windows), int(lengths.max())), dtype=np.int64)
    for row, window in zip(tokens, windows, strict=True):
        row[: len(window)] = window  # what comes after it changes nothing
    columns = lengths[:, None] - 1 - scored + np.arange(scored)
    reader = model.at(np.unique(columns)) if hasattr(model, "at") else model
    tokens_BT = torch.from_numpy(tokens).to(device)
    if with_hits:
        losses_BT, hits_BT = reader.token_predictions(tokens_BT)
        found = [losses_BT.float().cpu().numpy(), hits_BT.float().cpu().numpy()]
    else:
        found = [reader.token_losses(tokens_BT).float().cpu().numpy()]
    rows = np.arange(len(windows))[:, None]
    return np.stack([each[rows, columns] for each in found], axis=-1)
