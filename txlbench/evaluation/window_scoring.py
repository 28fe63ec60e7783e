"""Scores a text with sliding windows of a model that gives losses of windows only."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from txlbench.config.measurements import Measurement, check_length
from txlbench.data.segments import Segment
from txlbench.evaluation.context_losses import WindowModel, side_by_side
from txlbench.evaluation.eval_streams import TargetBlocks, eval_streams, stream_segments
from txlbench.evaluation.scoring import LossSum, Score, in_order, side_by_side_rows


def score_windows(
    model: WindowModel,
    ids: NDArray[Any],
    measurement: Measurement,
    device: torch.device,
    at_once: int,
    dtype: str,
    keep_losses: bool = False,
) -> Score:
    """Scores a split with windows that each start without memory.

    Args:
        ids: token ids [N + 1] of the split; only the windows being read leave the disk.
        measurement: of the regime `windows`.
        at_once: windows read side by side.
        dtype: the number format in which the model computes.
        keep_losses: whether each target's loss is returned too.
    """
    check_length(measurement, len(ids) - 1)
    plan = eval_streams(len(ids) - 1, measurement, n_layer=0)
    windows = (each for stream in plan for each in stream_segments(stream, measurement))
    total = LossSum(measurement.tgt_len, TargetBlocks.of(plan))
    kept: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def read(row: tuple[Segment, ...]) -> tuple[NDArray[Any], ...]:
        return _read(model, ids, row, device)

    for values, columns, places in side_by_side(read, side_by_side_rows(windows, at_once), device):
        total.add(values, columns, places - 1)
        if keep_losses:
            kept.append((values, places))
    losses, positions = in_order(kept) if keep_losses else (None, None)
    return Score.of(total, 0, dtype, losses=losses, positions=positions)


@torch.no_grad()
def _read(
    model: WindowModel, ids: NDArray[Any], row: tuple[Segment, ...], device: torch.device
) -> tuple[NDArray[Any], ...]:
    """Losses [K] of what counts in the windows, their places in them and in the split."""
    longest = max(window.length for window in row)
    starts = np.array([window.start for window in row])
    # Windows that are shorter are read on to the same length; what comes later changes nothing.
    places = np.minimum(starts[:, None] + np.arange(longest + 1), len(ids) - 1)
    tokens_BT = torch.from_numpy(ids[places].astype(np.int64)).to(device)
    losses_BT = model.token_losses(tokens_BT).float().cpu().numpy()
    scored = np.zeros((len(row), longest), dtype=bool)
    for index, window in enumerate(row):
        scored[index, window.length - window.scored : window.length] = True
    rows, columns = np.nonzero(scored)
    return losses_BT[rows, columns], columns, starts[rows] + columns + 1
