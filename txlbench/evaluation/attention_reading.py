"""Reads a split for the attention of its queries: streams with memory, or sliding windows.

As `evaluation.scoring` reads it, from plain memory, so that terms can be told apart. Only queries
that see the full number of keys count, of windows those that see all but a stride of it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from txlbench.config.measurements import Measurement, check_length
from txlbench.data.segments import Segment
from txlbench.evaluation.attention_tally import AttentionTally, Counted
from txlbench.evaluation.eval_streams import EvalStream, eval_streams, stream_segments
from txlbench.evaluation.scoring import side_by_side_rows
from txlbench.models.interface import LanguageModel

LARGEST = 2**21
"""Numbers in the attention of one layer, which bounds memory whatever the split."""

Progress = Callable[[int, int], None]


class AttentionWindows(Protocol):
    """A model that gives the attention of whole windows."""

    def attentions(self, tokens_BT: Tensor) -> Mapping[int, Tensor]:
        """Probabilities [B, H, T, S] by layer; a token of the model's own may begin the window."""


@dataclass(frozen=True)
class AttentionPlan:
    """Which queries are read, and how.

    Attributes:
        measurement: a pass at one attention length, at most as many queries at once as fit.
        predictions: of the split.
        given: the queries to read; None for those of the measurement.
    """

    measurement: Measurement
    predictions: int
    given: range | None = None

    @property
    def keys(self) -> int:
        """Keys that queries see at most, themselves included."""
        length = self.measurement.attention_length
        assert length is not None
        return length

    @property
    def least(self) -> int:
        """Keys of the text that a query sees at least, to count."""
        is_windows = self.measurement.regime == "windows"
        return self.keys - (self.measurement.stride - 1 if is_windows else 0)

    @property
    def streams(self) -> list[EvalStream]:
        """The stretches that are read; UserError if the split is too short for one query."""
        measurement, given = self.measurement, self.given
        check_length(measurement, self.predictions)
        if given is None:
            return eval_streams(self.predictions, measurement, 1)
        start = max(0, given.start - max(measurement.mem_len, measurement.tgt_len))
        return [EvalStream(start, given.start, given.stop)]

    @property
    def total(self) -> int:
        """Segments or windows that are read, side by side or not."""
        return sum(sum(1 for _ in self.segments(stream)) for stream in self.streams)

    def segments(self, stream: EvalStream) -> Iterator[Segment]:
        return stream_segments(stream, self.measurement)

    def rows(self, heads: int) -> Iterator[tuple[tuple[Segment, ...], tuple[EvalStream, ...]]]:
        """What is read at once: a segment of every stream, or as many windows as fit."""
        streams = self.streams
        if self.measurement.regime == "streaming":
            nothing = Segment(0, 0, 0)
            for row in zip_longest(*map(self.segments, streams), fillvalue=nothing):
                yield row, tuple(streams)
            return
        windows = (each for stream in streams for each in self.segments(stream))
        length = self.measurement.tgt_len
        for row in side_by_side_rows(windows, max(1, LARGEST // (heads * length**2))):
            yield row, tuple(EvalStream(each.start, each.start, each.stop) for each in row)

    def counted(
        self, row: Sequence[Segment], starts: Sequence[EvalStream], device: torch.device
    ) -> Counted:
        """The queries of a row that count: scored, and with enough keys before them."""
        longest = max(each.length for each in row)
        chosen = np.zeros((len(row), longest), dtype=bool)
        position = np.zeros((len(row), longest), dtype=np.int64)
        for index, (segment, stream) in enumerate(zip(row, starts, strict=True)):
            places = segment.start + np.arange(segment.length)
            position[index, : segment.length] = places
            enough = places - stream.start + 1 >= self.least
            enough[: segment.length - segment.scored] = False
            chosen[index, : segment.length] = enough
        return Counted(*(torch.from_numpy(each).to(device) for each in (chosen, position)))


def fitting(measurement: Measurement, heads: int) -> Measurement:
    """The measurement with segments that are short enough for a layer's attention to fit.

    With an attention length of its own no number depends on where segments are cut.
    """
    length = measurement.attention_length
    if measurement.regime != "streaming" or length is None:
        return measurement
    at_once = max(1, LARGEST // (heads * measurement.batch_size * 2 * length))
    tgt_len = min(measurement.tgt_len, at_once)
    return measurement.model_copy(update={"tgt_len": tgt_len, "stride": tgt_len})


@torch.no_grad()
def read_attention(
    model: LanguageModel,
    ids: NDArray[Any],
    plan: AttentionPlan,
    heads: int,
    tally: AttentionTally,
    device: torch.device,
    progress: Progress,
) -> None:
    """Adds the attention of one of our models, and the terms of its scores, to `tally`.

    Args:
        model: in evaluation mode and on `device`.
        ids: token ids [N + 1] of the split.
    """
    span, is_windows = plan.measurement.span, plan.measurement.regime == "windows"
    state: Any = None
    for row, counted in _counted_rows(plan, heads, device, progress):
        tokens_BT = _tokens(ids, row, device)
        if state is None or is_windows:
            state = model.initial_state(len(row), span)
        tally.expect(counted)
        _, state = model.forward(tokens_BT, state, tally)


@torch.no_grad()
def read_attention_windows(
    model: AttentionWindows,
    ids: NDArray[Any],
    plan: AttentionPlan,
    heads: int,
    tally: AttentionTally,
    device: torch.device,
    progress: Progress,
) -> None:
    """Adds the attention that a model gives of windows, as `read_attention` does."""
    for row, counted in _counted_rows(plan, heads, device, progress):
        tokens_BT = _tokens(ids, row, device)
        tally.expect(counted)
        for layer, attention_BHTS in model.attentions(tokens_BT).items():
            own = attention_BHTS.shape[2] - tokens_BT.shape[1]  # queries of what is no text
            tally.add(layer, attention_BHTS.transpose(0, 1)[:, :, own:])


def _counted_rows(
    plan: AttentionPlan, heads: int, device: torch.device, progress: Progress
) -> Iterator[tuple[tuple[Segment, ...], Counted]]:
    total, done = plan.total, 0
    for row, streams in plan.rows(heads):
        progress(done, total)
        yield row, plan.counted(row, streams, device)
        done += sum(segment.length > 0 for segment in row)
    progress(total, total)


def _tokens(ids: NDArray[Any], row: Sequence[Segment], device: torch.device) -> Tensor:
    longest = max(segment.length for segment in row)
    tokens = np.zeros((len(row), longest), dtype=np.int64)
    for index, segment in enumerate(row):
        tokens[index, : segment.length] = ids[segment.start : segment.stop]
    return torch.from_numpy(tokens).to(device)
