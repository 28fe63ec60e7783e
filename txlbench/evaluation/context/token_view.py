"""Context probing (Cífka and Liutkus 2023): which stretch of context helped which token.

D(t, c) = l(c - 1, t) - l(c, t) is the credit of the token c back. Between two contexts that were
measured the credits of single tokens add up to the credit of the stretch, l(c, t) - l(c', t), so
no more is needed than the losses that are there; dense contexts give single tokens.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.context.token_classes import TokenText
from txlbench.evaluation.recl.metric import ModelGroup
from txlbench.records.context_schema import TokenView

LENGTH = 48
"""Tokens of the span."""
FEWEST = 12
"""Successive tokens that make a span worth a look."""
STRETCHES = 10
"""Stretches of context at most."""


class NoSpanError(Exception):
    """Losses do not let stretches of context be compared; the message says why."""


def token_view(group: ModelGroup, text: TokenText | None) -> TokenView:
    """The span of successive tokens that context helps most, in the mean over models.

    Raises:
        NoSpanError: where the scored tokens do not stand side by side, or contexts are missing.
    """
    if len(group.contexts) < 2:
        raise NoSpanError("one context only was measured")
    first, length = _span(group)
    rows = stretch_ends(group.contexts)
    ends = tuple(group.contexts[row] for row in rows)
    chosen = slice(first, first + length)
    positions = group.positions[chosen]
    losses = group.losses[:, rows, chosen]
    credit = -np.diff(losses, axis=1)
    return TokenView(
        positions=tuple(positions.tolist()),
        tokens=_tokens(text, positions),
        is_text=text is not None and text.pieces is not None,
        contexts=ends,
        losses={
            name: tuple(own[-1].tolist()) for name, own in zip(group.names, losses, strict=True)
        },
        credit={
            name: tuple(tuple(line) for line in own.T.tolist())
            for name, own in zip(group.names, credit, strict=True)
        },
    )


def _span(group: ModelGroup) -> tuple[int, int]:
    """Index and number of the tokens: those of a run of successive positions that gain most."""
    is_next = np.concatenate([[False], np.diff(group.positions) == 1])
    index = np.arange(len(is_next))
    run = index - np.maximum.accumulate(np.where(is_next, 0, index)) + 1
    length = min(LENGTH, int(run.max()))
    if length < FEWEST:
        raise NoSpanError(
            f"no {FEWEST} successive tokens were scored; --dense scores some, or choose --contexts "
            "whose differences have no common divisor"
        )
    gained = np.maximum(group.losses[:, 0] - group.losses[:, -1], 0.0).mean(axis=0)
    sums = np.convolve(gained, np.ones(length))[: len(gained)]
    end = int(np.where(run >= length, sums, -np.inf).argmax())
    return end - length + 1, length


def stretch_ends(contexts: Sequence[int]) -> list[int]:
    """Indexes of the contexts that end stretches: all of a few, else about evenly by logarithm."""
    if len(contexts) <= STRETCHES + 1:
        return list(range(len(contexts)))
    wanted = np.geomspace(contexts[0], contexts[-1], STRETCHES + 1)
    rows = np.abs(np.log(np.asarray(contexts))[:, None] - np.log(wanted)).argmin(axis=0)
    return sorted(set(rows.tolist()))


def _tokens(text: TokenText | None, positions: NDArray[np.int64]) -> tuple[str, ...]:
    """What the tokens read as; their positions where nobody says."""
    if text is None or text.pieces is None:
        return tuple(f"{position:,}" for position in positions.tolist())
    pieces = text.pieces
    return tuple(pieces[number] for number in np.asarray(text.ids)[positions].tolist())
