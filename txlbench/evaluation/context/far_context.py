"""Perturbed far context, and cache eviction: what a model takes from tokens that lie far back.

Of n tokens before a target the nearest k stay, the others are changed by f. The ablated information
A(f, k) = [m_f(k) - m(n)] / [m(k) - m(n)] (O'Connor and Andreas 2021, equation 10) is 0 where
nothing is lost and 1 where f does as much harm as a cut at k. They train a model for each f; here
the model was never trained on changed text, which harms it besides: an upper bound (test-time
changes as in Khandelwal et al. 2018; Sun et al. 2021).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.errors import UserError
from txlbench.evaluation.context.resampling import Resampling, interval
from txlbench.evaluation.context.token_classes import TOP_TYPES
from txlbench.records.context_schema import Interval, Missing
from txlbench.records.probe_schema import Eviction, FarChange, FarContext

KINDS = ("shuffle", "reverse", "other", "frequent", "rare")
OTHER_TEXT = 4
"""Lengths of a window that a text needs, so that half of it away another one lies beside it."""


@dataclass(frozen=True)
class Change:
    """What becomes of the far context.

    Attributes:
        kind: of `KINDS`. `other` is a stretch of the same text, half of it away; `frequent` and
            `rare` keep the tokens of the most frequent tenth of the types, or the others, closed
            up, so that the window becomes shorter: no token stands for nothing.
        within: tokens that are shuffled among themselves, counted from the near end; None for all.
    """

    kind: str
    within: int | None = None

    @classmethod
    def parse(cls, name: str) -> "Change":
        """The change called `name`; UserError if there is none."""
        kind, colon, within = name.partition(":")
        is_known = kind in KINDS and (not colon or (kind == "shuffle" and within.isdigit()))
        if not is_known or (colon and int(within) < 2):
            raise UserError(
                f"--changes: {name!r} found", f"give {', '.join(KINDS)}, or shuffle:W of W tokens"
            )
        return cls(kind, int(within) if colon else None)

    @property
    def name(self) -> str:
        return self.kind if self.within is None else f"{self.kind}:{self.within}"

    def apply(
        self,
        far: NDArray[np.int64],
        other: NDArray[np.int64],
        frequent: NDArray[np.bool_],
        random: np.random.Generator,
    ) -> NDArray[np.int64]:
        """The changed far context, oldest token first.

        Args:
            other: as many tokens of another text.
            frequent: [V], whether each type is among the most frequent.
        """
        match self.kind:
            case "shuffle":
                within = self.within or max(1, len(far))
                parts = [far[max(0, end - within) : end] for end in range(len(far), 0, -within)]
                return np.concatenate([far[:0], *map(random.permutation, reversed(parts))])
            case "reverse":
                return far[::-1]
            case "other":
                return other
            case _:
                return far[frequent[far] == (self.kind == "frequent")]


def frequent_types(ids: NDArray[Any]) -> NDArray[np.bool_]:
    """[V]: whether a type is of the most frequent tenth of those in a text (Sun et al. 2021)."""
    counts = np.bincount(ids)
    top = max(1, round(TOP_TYPES * np.count_nonzero(counts)))
    frequent = np.zeros(len(counts), dtype=np.bool_)
    frequent[np.argsort(-counts, kind="stable")[:top]] = True
    return frequent


def changed_windows(
    ids: NDArray[Any],
    positions: NDArray[np.int64],
    near: int,
    context: int,
    change: Change,
    seed: int,
) -> list[NDArray[np.int64]]:
    """The window of each target: changed far context, nearest `near` tokens, target.

    Every target has a shuffle of its own, which `seed` and its position decide.

    Raises:
        UserError: if the text is too short to hold another one.
    """
    if change.kind == "other" and len(ids) < OTHER_TEXT * (context + 1):
        raise UserError(
            f"a text of {len(ids):,} tokens has no other {context:,}", "give a longer text"
        )
    frequent = frequent_types(ids)
    found = []
    for position in positions.tolist():
        start, stop = position - context, position - near
        far = np.asarray(ids[start:stop], dtype=np.int64)
        away = other_start(start, len(far), len(ids))
        other = np.asarray(ids[away : away + len(far)], dtype=np.int64)
        changed = change.apply(far, other, frequent, np.random.default_rng([seed, position]))
        found.append(np.concatenate([changed, ids[stop : position + 1]]).astype(np.int64))
    return found


def other_start(start: int, length: int, whole: int) -> int:
    """Where another stretch of a text of `whole` tokens begins, half of it away."""
    later = start + whole // 2
    return later if later + length <= whole else max(0, start - whole // 2)


def plain_windows(
    ids: NDArray[Any], positions: NDArray[np.int64], context: int
) -> list[NDArray[np.int64]]:
    """The window of each target with exactly `context` predecessors, as they are."""
    return [np.asarray(ids[p - context : p + 1], dtype=np.int64) for p in positions.tolist()]


@dataclass(frozen=True, eq=False)
class FarLosses:
    """Losses [T] of one model on the same targets.

    Attributes:
        full: with n predecessors.
        cut: with the nearest k, by k.
        changed: with the far context changed, by k and name of the change.
        window: with n predecessors of which each query sees the nearest k, by k.
        sinks: the same with the first keys of the window in sight, which take places of the k.
    """

    full: NDArray[np.float64]
    cut: Mapping[int, NDArray[np.float64]]
    changed: Mapping[tuple[int, str], NDArray[np.float64]]
    window: Mapping[int, NDArray[np.float64]]
    sinks: Mapping[int, NDArray[np.float64]]

    def resampling(self, positions: NDArray[np.int64], seed: int) -> Resampling:
        """One resampling of blocks of targets, which all measures share."""
        parts = (self.cut, self.changed, self.window, self.sinks)
        every = [self.full, *(each for part in parts for each in part.values())]
        return Resampling.of(np.stack(every)[None], positions, seed)


def far_contexts(losses: FarLosses, resampling: Resampling) -> Iterator[FarContext]:
    """What lies beyond the nearest k tokens is worth, and what each change leaves of it."""
    full = resampling.means(losses.full)
    for near, cut in losses.cut.items():
        worth = resampling.means(cut) - full
        found = interval(worth)
        is_used = found.value > 0 and found.is_resolved
        yield FarContext(
            near=near,
            worth=found,
            changes=tuple(
                _far_change(name, resampling.means(each) - full, worth if is_used else None)
                for (k, name), each in losses.changed.items()
                if k == near
            ),
        )


def _far_change(
    name: str, cost: NDArray[np.float64], worth: NDArray[np.float64] | None
) -> FarChange:
    ablated = None if worth is None else interval(cost / worth)
    return FarChange(change=name, cost=interval(cost), ablated=ablated)


def why_not_ablated(contexts: Sequence[FarContext], resampling: Resampling) -> Iterator[Missing]:
    """The reason why there is no A(f, k), for each k without."""
    for each in contexts:
        if any(change.ablated is None for change in each.changes):
            shown = f"{each.worth.value:.4f} nats{_brackets(each.worth)}"
            why = f"what lies farther is worth {shown}, not above 0: there is nothing to lose"
            yield Missing(
                measure=f"ablated information beyond {each.near} tokens",
                reason=resampling.problem or why,
            )


def _brackets(found: Interval) -> str:
    return "" if found.low is None else f" [{found.low:.4f}, {found.high:.4f}]"


def evictions(losses: FarLosses, resampling: Resampling) -> Iterator[Eviction]:
    """What a cache of k keys costs, and what sinks in it save."""
    full = resampling.means(losses.full)
    for keys, window in losses.window.items():
        plain = resampling.means(window)
        kept = losses.sinks.get(keys)
        yield Eviction(
            keys=keys,
            cost=interval(plain - full),
            saved=None if kept is None else interval(plain - resampling.means(kept)),
        )
