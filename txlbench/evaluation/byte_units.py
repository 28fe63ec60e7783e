"""Units of a text that several tokenizers share, so that their models are scored on the same bytes.

Grid points lie at the first byte at or after s, 2 s, 3 s, ... where every tokenizer has a boundary
between tokens. A target is the text from a grid point to the next such boundary; its context of
nominally c bytes begins c / s grid points before it. One window of text gives contexts s, 2 s, ...
of the targets after its start, whatever the tokens are that a model cuts it into.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from txlbench.data.tokenized import TokenizedText
from txlbench.errors import UserError
from txlbench.evaluation.context_positions import choose_positions
from txlbench.evaluation.windows import Windows


@dataclass(frozen=True, eq=False)
class ByteUnits:
    """T targets and the text before them at each of C contexts, by byte of the text.

    Attributes:
        starts, stops: [T], ascending: the target is the bytes from `starts` to before `stops`.
        contexts: [C], nominal lengths in bytes.
        context_starts: [C, T], where the text of each context begins.
        left_out: targets of the grid without a unit of their own, as tokens reach over them.
    """

    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    contexts: NDArray[np.int64]
    context_starts: NDArray[np.int64]
    left_out: int = 0

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[T], bytes of each target."""
        return self.stops - self.starts

    @property
    def deviations(self) -> NDArray[np.int64]:
        """[C, T], bytes by which real contexts are longer than nominal."""
        return self.starts - self.context_starts - self.contexts[:, None]


def common_boundaries(texts: Sequence[TokenizedText]) -> NDArray[np.int64]:
    """The bytes, ascending, at which every tokenizer has a boundary, 0 and the end included."""
    inner: NDArray[np.int64] = reduce(np.intersect1d, [text.ends for text in texts])
    return np.union1d(np.zeros(1, dtype=np.int64), inner)


def choose_units(
    boundaries: NDArray[np.int64], contexts: Sequence[int], count: int | None
) -> ByteUnits:
    """The targets on an even grid over a text, each with the longest context before it.

    Args:
        boundaries: ascending bytes between which targets lie; the first is 0, the last the end.
        contexts: ascending numbers of bytes.
        count: targets; None for as many as usual.

    Raises:
        UserError: if the text is too short, or has no boundaries between which targets could lie.
    """
    length, contexts_C = int(boundaries[-1]), np.array(contexts, dtype=np.int64)
    # With 0 among the contexts, the step divides the contexts and not only their differences.
    nominal_T = choose_positions(length, (0, *contexts), count, unit="bytes").array
    starts_T = _points(boundaries, nominal_T)
    begins_CT = _points(boundaries, nominal_T - contexts_C[:, None])
    kept = (np.diff(starts_T, prepend=-1) > 0) & (starts_T < length)
    kept &= begins_CT[0] < starts_T
    if not kept.any():
        raise UserError(
            f"--models: no two boundaries between tokens that all share within {length:,} bytes",
            "give longer --contexts, or models whose tokenizers are more alike",
        )
    starts_T, begins_CT = starts_T[kept], begins_CT[:, kept]
    stops_T = boundaries[np.searchsorted(boundaries, starts_T, side="right")]
    return ByteUnits(starts_T, stops_T, contexts_C, begins_CT, int((~kept).sum()))


def _points(boundaries: NDArray[np.int64], bytes_: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first boundary at or after each byte."""
    found: NDArray[np.int64] = boundaries[np.searchsorted(boundaries, bytes_)]
    return found


def unit_windows(text: TokenizedText, units: ByteUnits, longest: int | None = None) -> Windows:
    """The windows of one model's tokens that give the loss of each unit at each context.

    Args:
        longest: the most predecessors that the model can use; what lies before is left out.

    Raises:
        UserError: if a unit has more tokens than that.
    """
    firsts_T, stops_T = text.index(units.starts), text.index(units.stops)
    starts_CT = text.index(units.context_starts)
    if longest is not None:
        starts_CT = np.maximum(starts_CT, stops_T - 1 - longest)
        if (starts_CT >= firsts_T).any():
            raise UserError(
                f"--models: a stretch of {int((stops_T - firsts_T).max()):,} tokens between two "
                f"common boundaries, but only {longest:,} positions",
                "leave the model out, or give another text",
            )
    return Windows.of_targets(starts_CT, firsts_T, stops_T)


def longest_usable(text: TokenizedText, units: ByteUnits, longest: int | None) -> int | None:
    """The longest nominal context whose text a model can use whole; None without a limit.

    Raises:
        UserError: if even the shortest is too long.
    """
    if longest is None:
        return None
    tokens_CT = text.index(units.stops) - 1 - text.index(units.context_starts)
    whole_C = tokens_CT.max(axis=1) <= longest
    if whole_C.all():
        return None
    if not whole_C[0]:
        raise UserError(
            f"--contexts: {units.contexts[0]:,} bytes are up to {int(tokens_CT[0].max()):,} "
            f"tokens, but the model has {longest:,} positions",
            "give shorter contexts",
        )
    return int(units.contexts[int(whole_C.argmin()) - 1])
