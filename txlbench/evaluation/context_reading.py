"""Reads windows of text with a language model: cut into segments, several side by side."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from txlbench.config.base import AttentionSpan, RopeScaling
from txlbench.config.model import ModelConfig
from txlbench.errors import UserError
from txlbench.models.interface import LanguageModel

TARGETS = 512
"""Targets whose logits are computed at once: a large vocabulary makes them the largest tensor."""

SEGMENT = 200
"""Tokens at which a window is cut. Shorter segments have fewer scores of later keys to compute in
vain, but smaller products: from 150 to 250 was fastest for windows of 320 and of 1,000 tokens."""

TOKENS = {"cpu": 2**12, "cuda": 2**16}
"""Tokens read at once by type of device, on a CPU for each thread; more outgrows the caches."""

SCORES = {"cpu": 2**22, "cuda": 2**27}
"""Attention scores of one layer that are computed at once, likewise."""


@dataclass(frozen=True)
class WindowReader:
    """A language model as a `WindowModel`, whose values do not depend on where windows are cut.

    Attributes:
        model: in evaluation mode.
        span: how far it attends.
        segment: tokens of a window read at once; the next are read with memory.
        as_trained: memory is as short as in training, and windows are cut as segments were: what
            single losses are then is what the model does with so much context.
        columns: the places in a window whose losses are computed, ascending; the others are NaN.

    Raises:
        UserError: if windows are cut and memory does not reach back to their start: single
            losses would then depend on the cuts, and gains alternate with them.
    """

    model: LanguageModel
    span: AttentionSpan
    segment: int
    columns: NDArray[np.int64]
    as_trained: bool = False

    def __post_init__(self) -> None:
        longest = int(self.columns[-1]) + 1
        cut = self.segment < longest and not self.as_trained
        if cut and not self.span.same_length and self.span.mem_len < longest:
            raise UserError(
                f"memory of {self.span.mem_len} does not cover a context of {longest}",
                "give --attention-length, or choose shorter contexts",
            )

    def at(self, columns: NDArray[np.int64]) -> "WindowReader":
        """The same reader that computes the losses at `columns` only."""
        return replace(self, columns=columns)

    @torch.no_grad()
    def token_losses(self, tokens_BT: Tensor) -> Tensor:
        """See `WindowModel.token_losses`."""
        losses_BT = self._empty(tokens_BT)
        for columns, hidden_ND, targets_N in self._read(tokens_BT):
            losses_BT[:, columns] = self._losses(hidden_ND, targets_N).view(len(tokens_BT), -1)
        return losses_BT

    @torch.no_grad()
    def token_predictions(self, tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
        """See `GreedyModel.token_predictions`."""
        losses_BT = self._empty(tokens_BT)
        hits_BT = torch.zeros_like(losses_BT, dtype=torch.bool)
        for columns, hidden_ND, targets_N in self._read(tokens_BT):
            parts = (self.model.log_probs(part).argmax(-1) for part in hidden_ND.split(TARGETS))
            hits_BT[:, columns] = (torch.cat([*parts]) == targets_N).view(len(tokens_BT), -1)
            losses_BT[:, columns] = self._losses(hidden_ND, targets_N).view(len(tokens_BT), -1)
        return losses_BT, hits_BT

    @staticmethod
    def _empty(tokens_BT: Tensor) -> Tensor:
        shape = (tokens_BT.shape[0], tokens_BT.shape[1] - 1)
        return torch.full(shape, torch.nan, device=tokens_BT.device)

    def _read(self, tokens_BT: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Columns [C] of each segment that count, and states and targets, [B * C], of them."""
        rows, length = tokens_BT.shape[0], tokens_BT.shape[1] - 1
        state = self.model.evaluation_state(self.model.initial_state(rows, self.span))
        for start in range(0, length, self.segment):
            stop = min(start + self.segment, length)
            hidden_BTD, state = self.model.forward(tokens_BT[:, start:stop], state)
            first, end = np.searchsorted(self.columns, [start, stop])
            if first < end:
                chosen = torch.from_numpy(self.columns[first:end]).to(tokens_BT.device)
                hidden_ND = hidden_BTD[:, chosen - start].flatten(0, 1)
                yield chosen, hidden_ND, tokens_BT[:, chosen + 1].flatten()

    def _losses(self, hidden_ND: Tensor, targets_N: Tensor) -> Tensor:
        parts = zip(hidden_ND.split(TARGETS), targets_N.split(TARGETS), strict=True)
        return torch.cat(
            [self.model.losses(hidden[None], targets[None])[0].float() for hidden, targets in parts]
        )


def read_windows(
    model: LanguageModel,
    config: ModelConfig,
    contexts: NDArray[np.int64],
    device: torch.device,
    attention_length: int | None = None,
    clamp_len: int | None = None,
    windows: int | None = None,
    trained: tuple[AttentionSpan, int] | None = None,
    rope: RopeScaling | None = None,
) -> tuple[WindowReader, int]:
    """A reader of windows with a loss at each of `contexts`, and how many fill the device.

    Args:
        contexts: numbers of predecessors, ascending; the longest is the longest window.
        attention_length: keys each query sees, itself included; None for the whole window.
        windows: read side by side; None for as many as fit.
        trained: the span and the length of segments that a memory which shifts or compresses is
            read with, as it works from segment to segment only; None to read windows whole.
        rope: how rotary positions are scaled; None for as trained.

    Raises:
        UserError: for an attention length of a model without attention.
    """
    longest, columns = int(contexts[-1]), contexts - 1
    tokens, scores = (limit.get(device.type, limit["cuda"]) for limit in (TOKENS, SCORES))
    if config.is_recurrent:
        if attention_length is not None:
            raise UserError(
                f"--attention-length: {config.name} has no attention length to choose",
                "drop the option",
            )
        span = AttentionSpan(mem_len=longest)
        return WindowReader(model, span, longest, columns), windows or _fit(tokens, longest)
    if trained is not None and trained[0].mem_len and not config.remembers_inputs:
        if attention_length is not None:
            raise UserError(
                f"--attention-length: memory {config.memory} is read as trained", "drop the option"
            )
        span, tgt_len = trained
        reader = WindowReader(model, span, tgt_len, columns, as_trained=True)
        return reader, windows or _fit(tokens, tgt_len + span.mem_len)
    row = config.n_head * longest
    whole = config.kind == "hf" or not config.has_coherent_memory
    if windows is None:
        windows = min(_fit(tokens, longest), _fit(scores, row * longest))
    segments = max(round(longest / SEGMENT), -(-longest // _fit(scores, row * windows)))
    span = AttentionSpan(
        mem_len=attention_length or longest,
        clamp_len=clamp_len,
        rope=rope,
        same_length=attention_length is not None,
    )
    segment = longest if whole else -(-longest // segments)
    return WindowReader(model, span, segment, columns), windows


def _fit(budget: int, size: int) -> int:
    return max(1, budget // size)
