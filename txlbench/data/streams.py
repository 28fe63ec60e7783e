"""Training order: a split cut into contiguous streams, read segment by segment.

The layout is that of the official ordered iterator, but for the targets at the joints: the last
token of a stream is the first of the next, so that only the remainder of the division is dropped.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from txlbench.data.segments import Segments
from txlbench.errors import UserError


@dataclass(frozen=True)
class Batch:
    """One segment of every stream.

    Attributes:
        tokens: int64 [B, T], the inputs.
        targets: int64 [B, T], the token after each input.
        scored: number of last positions whose targets count; the others were scored before.
        first: whether an epoch starts here, so that memory is empty.
    """

    tokens: torch.Tensor
    targets: torch.Tensor
    scored: int
    first: bool


class Streams:
    """`batch_size` contiguous streams; stream b predicts ids[b*n + 1 : b*n + n + 1].

    Addressed by position, without end: `streams[k]` is the batch of step k, epochs follow one
    another, and so a resumed run needs k only. Iteration covers one epoch.

    Args:
        ids: token ids [N + 1], usually memory-mapped; only the segments asked for are read.
        batch_size: number of streams B.
        tgt_len: tokens a segment T; the last one of an epoch may be shorter.
        stride: tokens by which segments move on.

    Attributes:
        predictions: predictions n of each stream, all scored once an epoch.
        dropped: predictions at the end of the split that are in no stream.

    Raises:
        UserError: if the split has fewer predictions than there are streams.
    """

    def __init__(self, ids: NDArray[Any], batch_size: int, tgt_len: int, stride: int) -> None:
        available = max(0, len(ids) - 1)
        if available < batch_size:
            raise UserError(
                f"the split has {len(ids)} tokens, that is {available} predictions, too few for "
                f"{batch_size} streams",
                f"set batch_size to at most {available}" if available else "give a longer text",
            )
        self.predictions = available // batch_size
        self.dropped = available - self.predictions * batch_size
        self.segments = Segments(self.predictions, tgt_len, stride)
        self._ids = ids
        self._batch_size = batch_size

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.segments)

    def __getitem__(self, step: int) -> Batch:
        """The batch of step `step`, counted from 0 over all epochs."""
        assert step >= 0, f"step {step}"
        index = step % len(self)
        segment = self.segments[index]
        starts = range(
            segment.start, segment.start + self._batch_size * self.predictions, self.predictions
        )
        rows = [self._ids[start : start + segment.length + 1] for start in starts]
        window = torch.from_numpy(np.stack(rows).astype(np.int64))
        return Batch(window[:, :-1], window[:, 1:], segment.scored, index == 0)

    def __iter__(self) -> Iterator[Batch]:
        return (self[index] for index in range(len(self)))
