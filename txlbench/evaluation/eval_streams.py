"""Streams of a measurement: the predictions it scores, what is read before them, their context.

Prediction p reads ids[p] and what comes before, and predicts ids[p + 1]; a split of N + 1 tokens
has N predictions. An evaluation stream is a stretch of consecutive predictions that is scored,
with a lead-in that is only read.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.config.measurements import Measurement
from txlbench.data.planted import PlantedProcess
from txlbench.data.segments import Segment, Segments
from txlbench.errors import UserError


@dataclass(frozen=True)
class EvalStream:
    """Predictions [first, end) are scored; reading begins at `start`, without memory."""

    start: int
    first: int
    end: int


def eval_streams(predictions: int, measurement: Measurement, n_layer: int) -> list[EvalStream]:
    """The streams of a measurement, at most `batch_size`; together they drop nothing.

    Args:
        predictions: N, those that the split has.
        n_layer: layers that states pass on their way to a prediction, for the exact mode.

    Raises:
        UserError: if the split has nothing to predict.
    """
    if predictions < 1:
        raise UserError(
            f"split {measurement.split} has nothing to predict: it needs at least two tokens",
            "give a longer text",
        )
    made = []
    for first, end in _blocks(predictions, measurement):
        lead = _lead(measurement, n_layer)
        start = max(0, first - lead)
        if measurement.exact:
            start -= start % measurement.stride
        made.append(EvalStream(start, first, end))
    return made


def _blocks(predictions: int, measurement: Measurement) -> Iterator[tuple[int, int]]:
    """The scored predictions: equal slices of the split, or the end of each slice."""
    count = min(measurement.batch_size, predictions)
    wanted = min(measurement.tokens or predictions, predictions)
    for index in range(count):
        begin, end = (_cut(predictions, count, k) for k in (index, index + 1))
        first = end - (_cut(wanted, count, index + 1) - _cut(wanted, count, index))
        if measurement.exact and not measurement.tokens:
            first, end = (
                _align_to_stride(cut, predictions, measurement.stride) for cut in (begin, end)
            )
        if first < end:
            yield first, end


def _cut(total: int, count: int, index: int) -> int:
    """The begin of slice `index` of `count`; the first slices are longer by one, if any are.

    So the slices of a smaller total are never longer than those of a larger one.
    """
    return total // count * index + min(index, total % count)


def _align_to_stride(cut: int, predictions: int, stride: int) -> int:
    """A cut moved back to where segments or windows of the whole split begin."""
    return cut if cut == predictions else cut - cut % stride


def _lead(measurement: Measurement, n_layer: int) -> int:
    """Predictions read before the first that is scored.

    Windows need what their first one overlaps. A stream needs, to be exact, memory for as many
    segments as states can travel through all layers; a sample of the split starts with one
    memory; streams over the whole split start cold, as in the official code.
    """
    if measurement.regime == "windows":
        return measurement.tgt_len - measurement.stride
    if measurement.exact:
        return n_layer * -(-measurement.mem_len // measurement.tgt_len) * measurement.tgt_len
    return measurement.mem_len if measurement.tokens else 0


MOST_BLOCKS = 200
"""Blocks of targets whose mean losses are kept."""


@dataclass(frozen=True)
class TargetBlocks:
    """The targets of a measurement in order of position, cut into blocks of equal size.

    Models that score the same targets have the same blocks, whatever segments they read, so that
    their losses can be compared block by block.

    Attributes:
        firsts, ends: int64 [R], the ranges [first, end) of consecutive predictions, ascending.
        before: int64 [R], targets in earlier ranges.
    """

    firsts: NDArray[np.int64]
    ends: NDArray[np.int64]
    before: NDArray[np.int64]

    @classmethod
    def of(cls, streams: Sequence[EvalStream]) -> "TargetBlocks":
        """The blocks of what `streams` score; streams that touch are one range."""
        ranges: list[list[int]] = []
        for stream in streams:
            if ranges and ranges[-1][1] == stream.first:
                ranges[-1][1] = stream.end
            else:
                ranges.append([stream.first, stream.end])
        firsts, ends = np.array(ranges, dtype=np.int64).reshape(-1, 2).T
        return cls(firsts, ends, np.cumsum(ends - firsts) - (ends - firsts))

    @property
    def targets(self) -> int:
        return int((self.ends - self.firsts).sum())

    @property
    def count(self) -> int:
        """Number of blocks."""
        return min(MOST_BLOCKS, self.targets)

    @property
    def fingerprint(self) -> str:
        """Equal for equal targets: a hash of the ranges."""
        return hashlib.sha256(np.stack([self.firsts, self.ends]).tobytes()).hexdigest()[:12]

    def index(self, predictions: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        """The block [K] of each of `predictions` [K], all of which are targets."""
        ranges = np.searchsorted(self.firsts, predictions, side="right") - 1
        ranks = self.before[ranges] + predictions - self.firsts[ranges]
        return ranks * self.count // self.targets


def stream_segments(stream: EvalStream, measurement: Measurement) -> Iterator[Segment]:
    """The segments or windows that read a stream; together they score it once.

    In the lead-in `scored` is 0.
    """
    cut = Segments(stream.end - stream.start, measurement.tgt_len, measurement.stride)
    for segment in cut:
        start, end = stream.start + segment.start, stream.start + segment.stop
        scored = max(0, min(segment.scored, end - stream.first))
        if scored or measurement.regime == "streaming":
            yield Segment(start, segment.length, scored)


def seen_context(
    predictions: int, measurement: Measurement, n_layer: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions [N] of the scored tokens in the split, ascending, and the context [N] of each.

    A token sees its segment up to itself and the memory, with same_length mem_len of both. What
    states in memory may have kept of still earlier tokens is not counted.
    """
    positions, contexts, exact = [], [], measurement.same_length
    for stream in eval_streams(predictions, measurement, n_layer):
        for segment in stream_segments(stream, measurement):
            inside = np.arange(segment.length - segment.scored, segment.length)
            remembered = min(measurement.mem_len, segment.start - stream.start)
            positions.append(segment.start + inside + 1)
            seen = remembered + inside + 1
            contexts.append(np.minimum(seen, measurement.mem_len) if exact else seen)
    order = np.argsort(np.concatenate(positions))
    return np.concatenate(positions)[order], np.concatenate(contexts)[order]


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
