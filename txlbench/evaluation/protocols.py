"""Perplexities that go by one name: how other programs cut a text into windows, and what they sum.

Each function gives the windows of one program over a stream of N tokens, a first token that the
program puts there included. Facts from lm-evaluation-harness (`utils.get_rolling_token_windows`,
`make_disjoint_window`), llama.cpp (`tools/perplexity/perplexity.cpp`) and the guide "Perplexity of
fixed-length models" of transformers.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray

from txlbench.errors import UserError
from txlbench.evaluation.context_losses import WindowModel, side_by_side


@dataclass(frozen=True)
class ScoredWindow:
    """A window of the stream that is read from empty memory.

    Attributes:
        start, stop: its tokens, the last of which is only predicted.
        scored: the number of tokens at its end whose losses count.
        weight: by which each of these losses counts.
    """

    start: int
    stop: int
    scored: int
    weight: float = 1.0


def sliding_windows(tokens: int, window: int, stride: int) -> Iterator[ScoredWindow]:
    """Every token but the first is scored once, after up to `window` tokens.

    The first window is scored whole, each later one on the tokens by which it moved on.
    """
    stop = min(window + 1, tokens)
    yield ScoredWindow(0, stop, stop - 1)
    while stop < tokens:
        before, stop = stop, min(stop + stride, tokens)
        yield ScoredWindow(max(0, stop - window - 1), stop, stop - before)


def lm_eval_windows(tokens: int, window: int) -> Iterator[ScoredWindow]:
    """Disjoint windows whose first token has one token of context; the last has full context."""
    return sliding_windows(tokens, window, window)


def llama_cpp_windows(tokens: int, window: int) -> Iterator[ScoredWindow]:
    """Disjoint windows, scored in their second half; what is left of the text is dropped."""
    for start in range(0, tokens - window + 1, window):
        yield ScoredWindow(start, start + window, window - 1 - window // 2)


def hf_guide_windows(tokens: int, window: int, stride: int) -> Iterator[ScoredWindow]:
    """Windows that move on by `stride`, each mean loss weighted by one target too few.

    A window's tokens are fed with labels for those that the one before lacks, say n. Labels shift
    by one, so the first window of `window` tokens has n - 1 losses; later ones have n, but their
    mean is weighted by n - 1 too.
    """
    before = 0
    for start in range(0, tokens, stride):
        stop = min(start + window, tokens)
        new = stop - before
        scored = min(new, stop - start - 1)
        if scored:
            yield ScoredWindow(start, stop, scored, (new - 1) / scored)
        before = stop
        if stop == tokens:
            return


@dataclass(frozen=True)
class ProtocolScore:
    """What windows of a text came to.

    Attributes:
        nats: weighted sum of the losses.
        weight: sum of their weights.
        tokens: losses that were summed.
        squares: weighted sum of their squares.
        mean_context: tokens before a scored one in its window, on average.
    """

    nats: float
    weight: float
    tokens: int
    squares: float
    mean_context: float

    @property
    def loss(self) -> float:
        """Weighted mean in nats a token."""
        return self.nats / self.weight

    @property
    def standard_error(self) -> float:
        """Of the mean, tokens taken as independent, as llama.cpp does."""
        variance = self.squares / self.weight - self.loss**2
        return math.sqrt(max(0.0, variance) / max(1.0, self.weight - 1))


Reader = Callable[[NDArray[np.int64]], tuple[WindowModel, int]]
"""Gives a model that reads the losses at some contexts, and the windows that it reads at once."""


@torch.no_grad()
def score_protocol(
    reader: Reader,
    stream: NDArray[np.int64],
    windows: Iterator[ScoredWindow],
    device: torch.device,
    first: int | None = None,
) -> ProtocolScore:
    """Reads the windows of a stream of tokens and sums the losses that count.

    Args:
        first: the id that takes the place of each window's first token; None to leave it.

    Raises:
        UserError: if there is no loss to sum.
    """
    totals, contexts = np.zeros(4), 0.0
    for (length, scored), group in groupby(windows, lambda w: (w.stop - w.start, w.scored)):
        model, at_once = reader(np.arange(length - scored, length))
        same = list(group)
        parts = [same[i : i + at_once] for i in range(0, len(same), at_once)]

        def read(part: list[ScoredWindow], model: WindowModel = model) -> NDArray[np.float64]:
            tokens = np.stack([stream[window.start : window.stop] for window in part])
            if first is not None:
                tokens[:, 0] = first
            losses_BT = model.token_losses(torch.from_numpy(tokens).to(device))
            return losses_BT.double().cpu().numpy()

        for part, losses_BT in zip(parts, side_by_side(read, parts, device), strict=True):
            counted = losses_BT[:, losses_BT.shape[1] - scored :]
            weights = np.array([window.weight for window in part])
            sums = [counted.sum(axis=1) @ weights, weights.sum() * scored, counted.size]
            totals += [*sums, np.square(counted).sum(axis=1) @ weights]
        contexts += len(same) * sum(range(length - scored, length))
    nats, weight, tokens, squares = totals.tolist()
    if not weight:
        raise UserError("--protocol: no token of the text is scored", "give a longer text")
    return ProtocolScore(nats, weight, int(tokens), squares, contexts / tokens)
