"""Measures of the curve m(c), the mean loss given exactly c predecessors.

The curve itself and its distance from the best model, what a longer context costs token by token
(net harm), the ICL score (Olsson et al. 2022) and the usable information of each step for a group
(V-information, Xu et al. 2020, as O'Connor and Andreas 2021 apply it to context).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.context.resampling import (
    Resampling,
    context_lengths,
    interval,
    intervals,
)
from txlbench.evaluation.recl.metric import ModelGroup, limited
from txlbench.records.context_schema import (
    ContextCurve,
    Harm,
    IclScore,
    InformationStep,
    Interval,
)

DELTA = 0.1
"""Nats by which a token's loss has to change to count as harmed or helped."""
ICL_CONTEXTS = (50, 500)
"""Predecessors of the tokens that Olsson et al. compare, the 50th and the 500th of a window."""


@dataclass(frozen=True, eq=False)
class Means:
    """Mean losses of a group, [M, C, 1 + N]: of the tokens as they are, and of N resamples."""

    array: NDArray[np.float64]
    contexts: tuple[int, ...]

    @classmethod
    def of(cls, group: ModelGroup, resampling: Resampling) -> "Means":
        return cls(np.stack([resampling.means(each) for each in group.losses]), group.contexts)

    @property
    def best(self) -> int:
        """The model with the lowest loss at the longest context."""
        return int(self.array[:, -1, 0].argmin())


def context_curves(
    group: ModelGroup, means: Means, resampling: Resampling, threshold: float
) -> Iterator[ContextCurve]:
    """The curve of each model.

    Args:
        threshold: the share of perplexity by which ECL may be above the best.
    """
    for model, name in enumerate(group.names):
        own = means.array[model]
        least = int(own[:, 0].argmin())
        yield ContextCurve(
            model=name,
            losses=intervals(own),
            above_best=intervals(own - means.array[means.best]),
            gain=interval(own[0] - own[-1]),
            best_context=group.contexts[least],
            excess=interval(own[-1] - own[least]),
            ecl=length_interval(own, group, model, threshold),
            harm=tuple(_harms(group.losses[model], group.contexts, resampling)),
        )


def length_interval(
    means: NDArray[np.float64], group: ModelGroup, model: int, threshold: float
) -> Interval:
    """ECL from mean losses [C, 1 + N], never above what the model can use."""
    lengths = context_lengths(means, group.contexts, threshold)
    longest = limited(group.contexts[-1], group.longest[model])
    return interval(np.minimum(lengths, longest))


def _harms(
    losses: NDArray[np.float64], contexts: Sequence[int], resampling: Resampling
) -> Iterator[Harm]:
    """Of every step, and from the first context to the last where there are several steps."""
    last = len(contexts) - 1
    steps = [(step, step + 1) for step in range(last)]
    for before, after in [*steps, (0, last)] if last > 1 else steps:
        rise = losses[after] - losses[before]
        values = [rise > DELTA, rise < -DELTA, np.maximum(rise, 0.0), np.maximum(-rise, 0.0)]
        harmed, helped, cost, gain = intervals(resampling.means(np.stack(values, dtype=np.float64)))
        yield Harm(
            shorter=contexts[before],
            longer=contexts[after],
            delta=DELTA,
            harmed=harmed,
            helped=helped,
            cost=cost,
            gain=gain,
        )


def icl_scores(group: ModelGroup, means: Means) -> Iterator[IclScore]:
    """m(500) - m(50) of each model; nothing where these contexts were not measured."""
    if set(ICL_CONTEXTS) <= set(group.contexts):
        short, long = (group.contexts.index(context) for context in ICL_CONTEXTS)
        for name, own in zip(group.names, means.array, strict=True):
            score = interval(own[long] - own[short])
            yield IclScore(model=name, shorter=ICL_CONTEXTS[0], longer=ICL_CONTEXTS[1], score=score)


def information_steps(group: ModelGroup, means: Means) -> Iterator[InformationStep]:
    """I(c -> c') = min over models of m(c), less min over models of m(c'), for every step.

    The models of the group stand for the family V, whose best member predicts with either context.
    """
    least, best = means.array.min(axis=0), means.array[..., 0].argmin(axis=0)
    for step in range(len(group.contexts) - 1):
        yield InformationStep(
            shorter=group.contexts[step],
            longer=group.contexts[step + 1],
            nats=interval(least[step] - least[step + 1]),
            best=(group.names[best[step]], group.names[best[step + 1]]),
        )
