"""Context losses: the loss on a token given exactly its c predecessors, for every c in one pass.

l(c, t) = -log p(x_t | x_{t-1}, ..., x_{t-c}) in nats (Dai et al. 2019, Appendix C), equal to what
feeding the c tokens alone, in one segment, would give.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from txlbench.evaluation.context_reading import Reading
from txlbench.evaluation.context_windows import Windows
from txlbench.evaluation.partial_losses import PartialLosses
from txlbench.evaluation.side_by_side import side_by_side
from txlbench.models.interface import LanguageModel

TARGETS = 512
"""Targets whose logits are computed at once: a large vocabulary makes them the largest tensor."""

Progress = Callable[[int, int], None]
"""Told how many windows are read, and how many there are."""


def context_losses(
    model: LanguageModel,
    ids: NDArray[Any],
    contexts: NDArray[np.int64],
    positions: NDArray[np.int64],
    reading: Reading,
    device: torch.device,
    kept: PartialLosses,
    progress: Progress,
) -> NDArray[np.float32]:
    """Losses [C, T] in nats of the tokens at `positions` [T], given `contexts` [C] predecessors.

    A context beyond `reading.longest` is that one: the model can use no more.

    Args:
        model: in evaluation mode and on `device`.
        ids: token ids of the split; only the windows being read leave the disk.
        kept: what an earlier call computed is not computed again.
    """
    usable = np.minimum(contexts, reading.longest)
    distinct = np.unique(usable)
    windows = Windows.of(distinct, positions)
    read = partial(_read, model, ids, windows, reading, device)
    _read_all(read, windows, reading, device, kept, progress)
    losses = np.empty(distinct.size * positions.size, dtype=np.float32)
    losses[windows.order] = kept.read()
    return losses.reshape(distinct.size, positions.size)[np.searchsorted(distinct, usable)]


def _read_all(
    read: Callable[[tuple[int, int]], NDArray[np.float32]],
    windows: Windows,
    reading: Reading,
    device: torch.device,
    kept: PartialLosses,
    progress: Progress,
) -> None:
    """Appends to `kept` what it lacks of all windows, part by part."""
    done = windows.whole(len(kept))
    done -= done % reading.windows if done < len(windows) else 0
    kept.truncate(int(windows.offsets[done]))
    progress(done, len(windows))
    parts = [
        (first, min(first + reading.windows, len(windows)))
        for first in range(done, len(windows), reading.windows)
    ]
    for (_, end), found in zip(parts, side_by_side(read, parts, device), strict=True):
        kept.append(found)
        progress(end, len(windows))


@torch.no_grad()
def _read(
    model: LanguageModel,
    ids: NDArray[Any],
    windows: Windows,
    reading: Reading,
    device: torch.device,
    part: tuple[int, int],
) -> NDArray[np.float32]:
    """The losses that windows [first, end) give, in their order."""
    first, end = part
    rows = windows.rows_of(first, end)
    columns = windows.contexts[windows.losses_of(first, end)] - 1
    length = int(columns.max()) + 1
    # Windows that need less are read on to the same length; what comes later changes nothing.
    places = windows.starts[first:end, None] + np.arange(length + 1)
    tokens = torch.from_numpy(ids[np.minimum(places, len(ids) - 1)].astype(np.int64)).to(device)
    losses = np.empty(len(rows), dtype=np.float32)
    state = model.evaluation_state(model.initial_state(end - first, reading.view))
    for start in range(0, length, reading.segment):
        stop = min(start + reading.segment, length)
        hidden_BTD, state = model.forward(tokens[:, start:stop], state)
        here = np.flatnonzero((columns >= start) & (columns < stop))
        if not here.size:
            continue
        chosen = torch.from_numpy(rows[here]).to(device), torch.from_numpy(columns[here]).to(device)
        targets = tokens[chosen[0], chosen[1] + 1]
        hidden_ND = hidden_BTD[chosen[0], chosen[1] - start]
        losses[here] = np.concatenate([*_losses(model, hidden_ND, targets)])
    return losses


def _losses(
    model: LanguageModel, hidden_ND: Tensor, targets_N: Tensor
) -> Iterator[NDArray[np.float32]]:
    for hidden, targets in zip(hidden_ND.split(TARGETS), targets_N.split(TARGETS), strict=True):
        yield model.losses(hidden[None], targets[None])[0].float().cpu().numpy()
