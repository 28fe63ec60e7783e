"""Scores a split by one measurement: streams with memory, or sliding windows."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from txlbench.config.base import AttentionSpan
from txlbench.config.measurements import Measurement, check_length
from txlbench.data.segments import Segment
from txlbench.evaluation.eval_streams import (
    EvalStream,
    TargetBlocks,
    eval_streams,
    stream_segments,
)
from txlbench.models.interface import LanguageModel, State, dtype_name
from txlbench.world import ALONE, World


@dataclass
class LossSum:
    """Sums of losses in float64.

    Attributes:
        length: positions of a segment or window.
        blocks: where the targets lie.
        sums, squares, counts: float64, float64 and int64 [length], by position in the segment.
        block_sums, block_counts: float64 and int64 [blocks].
    """

    length: int
    blocks: TargetBlocks
    sums: NDArray[np.float64] = field(init=False)
    squares: NDArray[np.float64] = field(init=False)
    counts: NDArray[np.int64] = field(init=False)
    block_sums: NDArray[np.float64] = field(init=False)
    block_counts: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.sums = np.zeros(self.length)
        self.squares = np.zeros(self.length)
        self.counts = np.zeros(self.length, dtype=np.int64)
        self.block_sums = np.zeros(self.blocks.count)
        self.block_counts = np.zeros(self.blocks.count, dtype=np.int64)

    def add(
        self,
        losses: NDArray[np.floating[Any]],
        positions: NDArray[np.integer[Any]],
        predictions: NDArray[np.integer[Any]],
    ) -> None:
        """Adds losses [K] of `predictions` [K] at `positions` [K] of their segments."""
        exact = losses.astype(np.float64)
        np.add.at(self.sums, positions, exact)
        np.add.at(self.squares, positions, exact**2)
        np.add.at(self.counts, positions, 1)
        blocks = self.blocks.index(predictions)
        np.add.at(self.block_sums, blocks, exact)
        np.add.at(self.block_counts, blocks, 1)

    def share(self, world: World) -> None:
        """Adds up what the processes of a world have summed, in each of them."""
        parts = (self.sums, self.squares, self.counts, self.block_sums, self.block_counts)
        totals = world.total(*parts)
        self.sums, self.squares, self.counts, self.block_sums, self.block_counts = totals

    @property
    def tokens(self) -> int:
        """Targets scored."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Mean loss in nats a target."""
        return float(self.sums.sum() / self.tokens)

    def by_position(self) -> list[float | None]:
        """Mean loss in nats at each position, None where nothing was scored."""
        return [
            float(total / count) if count else None
            for total, count in zip(self.sums, self.counts, strict=True)
        ]

    def by_block(self) -> list[float]:
        """Mean loss in nats of each block of targets."""
        means: list[float] = (self.block_sums / self.block_counts).tolist()
        return means

    def errors_by_position(self) -> list[float | None]:
        """Standard errors of `by_position`, None where fewer than two targets were scored.

        Targets at one position of a segment lie a segment apart, and count as independent.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            means = self.sums / self.counts
            variances = (self.squares - self.counts * means**2) / (self.counts - 1)
            errors = np.sqrt(np.maximum(variances, 0) / self.counts)
        return [
            float(error) if count > 1 else None
            for error, count in zip(errors, self.counts, strict=True)
        ]


def zero_memory(model: LanguageModel, batch_size: int, span: AttentionSpan) -> State:
    """The state of `batch_size` streams that remember `mem_len` zeros in every layer."""
    state = model.initial_state(batch_size, span)
    return state.replace(
        {
            name: memory.new_zeros(batch_size, span.mem_len, *memory.shape[2:])
            for name, memory in state.tensors().items()
        }
    )


def best_length(losses: Mapping[int, float], regime: float = math.inf) -> int | None:
    """The attention length of the lowest loss, the shorter one of equals.

    None where the loss in the training regime, `regime`, is lower than all.
    """
    best = min(losses, key=lambda length: (losses[length], length), default=None)
    return None if best is None or regime < losses[best] else best


def shortest_length(
    losses: Mapping[int, float], tolerance: float, regime: float = math.inf
) -> int | None:
    """The shortest attention length within `tolerance` nats of the lowest loss; None if none is.

    "The shortest possible attention length during evaluation to achieve the corresponding
    result" (Dai et al. 2019, caption of Table 6).
    """
    lowest = min([regime, *losses.values()])
    near = (length for length, loss in losses.items() if loss <= lowest + tolerance)
    return min(near, default=None)


def in_order(
    kept: Iterable[tuple[NDArray[Any], NDArray[Any]]], world: World = ALONE
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Losses of all processes and their positions in the split, by position.

    Args:
        kept: losses and positions, some at a time, that this process has read.
    """
    nothing = (np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int64))
    losses, positions = (
        world.whole(torch.from_numpy(np.concatenate(parts))).numpy()
        for parts in zip(nothing, *kept, strict=True)
    )
    order = np.argsort(positions)
    return losses[order].astype(np.float32), positions[order].astype(np.int64)


def side_by_side_rows(windows: Iterator[Segment], at_once: int) -> Iterator[tuple[Segment, ...]]:
    """Windows in the order given, `at_once` in a row; the last row may be shorter."""
    return iter(lambda: tuple(islice(windows, at_once)), ())


WINDOW_TOKENS = 8192
"""Tokens of windows evaluated at once: they are independent, so this changes no number."""


@dataclass(frozen=True)
class Score:
    """The result of a measurement.

    Attributes:
        loss: mean in nats over `tokens` targets.
        by_position: the mean at each position of a segment, None where nothing is scored.
        errors_by_position: their standard errors, None where fewer than two are scored.
        cold_starts: streams that began without the memory that a longer text would give.
        dtype: the number format in which the model computed.
        attention: on which path (`LanguageModel.attention_path`).
        dropped: predictions of the split that were asked for and not scored.
        targets: fingerprint of the set of targets.
        by_block: the mean of each block of targets (`TargetBlocks`).
        losses: float32 [tokens] in nats, in order of position, if they were to be kept.
        positions: int64 [tokens], the index in the split of each predicted token.
    """

    loss: float
    tokens: int
    by_position: list[float | None]
    errors_by_position: list[float | None]
    cold_starts: int
    dtype: str
    targets: str
    by_block: list[float]
    dropped: int = 0
    attention: str | None = None
    losses: NDArray[np.float32] | None = None
    positions: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, total: LossSum, cold_starts: int, dtype: str, **kept: Any) -> "Score":
        """The score that sums of losses come to; `kept` has losses and positions, if any are."""
        return cls(
            loss=total.mean,
            tokens=total.tokens,
            by_position=total.by_position(),
            errors_by_position=total.errors_by_position(),
            cold_starts=cold_starts,
            dtype=dtype,
            targets=total.blocks.fingerprint,
            by_block=total.by_block(),
            **kept,
        )


@torch.no_grad()
def score(
    model: LanguageModel,
    ids: NDArray[Any],
    measurement: Measurement,
    n_layer: int,
    device: torch.device,
    keep_losses: bool = False,
    world: World = ALONE,
) -> Score:
    """Scores a split; the model must be in evaluation mode and on `device`.

    The processes of a world divide streams or windows, and each returns the whole result.

    Args:
        ids: token ids [N + 1] of the split; only the segments being read leave the disk.
        n_layer: the model's depth, which the exact mode needs.
        keep_losses: whether each target's loss is returned too.
    """
    check_length(measurement, len(ids) - 1)
    plan = eval_streams(len(ids) - 1, measurement, n_layer)
    total = LossSum(measurement.tgt_len, TargetBlocks.of(plan))
    reader = _Reader(model, ids, device, total, [] if keep_losses else None)
    if measurement.regime == "streaming":
        _stream(reader, plan[world.rank :: world.size], measurement)
    else:
        _slide(reader, plan, measurement, world)
    total.share(world)
    cold = sum(stream.start == stream.first and measurement.mem_len > 0 for stream in plan)
    losses, positions = reader.in_order(world) if keep_losses else (None, None)
    start = model.evaluation_state(model.initial_state(1, measurement.span))
    kept = {"attention": model.attention_path(start), "losses": losses, "positions": positions}
    return Score.of(total, cold, dtype_name(model), **kept)


def _stream(reader: "_Reader", plan: list[EvalStream], measurement: Measurement) -> None:
    """Reads all streams side by side with memory; streams that end earlier are padded."""
    if not plan:
        return
    span = measurement.span
    if measurement.zero_memory:
        state = zero_memory(reader.model, len(plan), span)
    else:
        state = reader.model.initial_state(len(plan), span)
    state = reader.model.evaluation_state(state)
    nothing = Segment(0, 0, 0)
    for row in zip_longest(
        *(stream_segments(stream, measurement) for stream in plan), fillvalue=nothing
    ):
        state = reader.read(row, state)


def _slide(
    reader: "_Reader", plan: list[EvalStream], measurement: Measurement, world: World
) -> None:
    """Reads all windows of all streams, each without memory; processes take turns at rows."""
    span = measurement.span
    windows = (segment for stream in plan for segment in stream_segments(stream, measurement))
    at_once = max(1, WINDOW_TOKENS // measurement.tgt_len)
    all_rows = side_by_side_rows(windows, at_once)
    states: dict[int, Any] = {}  # by windows read at once: the last are fewer
    for row in islice(all_rows, world.rank, None, world.size):
        rows = len(row)
        if rows not in states:
            states[rows] = reader.model.evaluation_state(reader.model.initial_state(rows, span))
        states[rows] = reader.read(row, states[rows])


@dataclass(frozen=True)
class _Reader:
    """Runs segments through the model and adds their losses up."""

    model: LanguageModel
    ids: NDArray[Any]
    device: torch.device
    total: LossSum
    kept: list[tuple[NDArray[Any], NDArray[Any]]] | None = None

    def read(self, row: tuple[Segment, ...], state: Any) -> Any:
        """Reads one segment a stream; returns the state after them."""
        longest = max(segment.length for segment in row)
        tokens = np.zeros((len(row), longest + 1), dtype=np.int64)
        scored = np.zeros((len(row), longest), dtype=bool)
        for index, segment in enumerate(row):
            stop = segment.start + segment.length
            tokens[index, : segment.length + 1] = self.ids[segment.start : stop + 1]
            scored[index, segment.length - segment.scored : segment.length] = True
        on_device = torch.from_numpy(tokens).to(self.device)
        hidden, state = self.model.forward(on_device[:, :-1], state)
        if scored.any():
            starts = np.array([segment.start for segment in row])
            self._add(hidden, on_device[:, 1:], scored, starts)
        return state

    def in_order(self, world: World) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The kept losses of all processes and their positions in the split, by position."""
        assert self.kept is not None
        return in_order(self.kept, world)

    def _add(
        self,
        hidden_BTD: Tensor,
        targets_BT: Tensor,
        scored_BT: NDArray[np.bool_],
        starts_B: NDArray[np.int64],
    ) -> None:
        chosen = torch.from_numpy(scored_BT).to(self.device)
        losses = self.model.losses(hidden_BTD[chosen][None], targets_BT[chosen][None])
        values = losses[0].float().cpu().numpy()
        rows, columns = np.nonzero(scored_BT)
        predictions = starts_B[rows] + columns
        self.total.add(values, columns, predictions)
        if self.kept is not None:
            self.kept.append((values, predictions + 1))
