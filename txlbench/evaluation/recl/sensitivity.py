"""What RECL would have been with another step, first context, threshold or training."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.recl.blocks import Blocks
from txlbench.evaluation.recl.group import Group, Terms
from txlbench.evaluation.recl.measures import Measures, measure

COARSER = (2, 3)
"""Only every so many-th context."""
LATER = (1, 2)
"""Contexts left out at the start."""
THRESHOLDS = (0.5, 2.0)
"""Times the threshold."""
WITH_RESETS = "trained with resets"
"""The setting in which short contexts were met in training."""


@dataclass(frozen=True)
class Variation:
    """Another choice of contexts, or of the threshold.

    Attributes:
        setting: what is other than in the main result.
        rows: indexes of the contexts that are walked.
    """

    setting: str
    rows: NDArray[np.intp]
    threshold: float

    @property
    def is_coarser(self) -> bool:
        """Whether its steps are none of the main result's."""
        return bool(np.diff(self.rows)[0] > 1)


def sensitivity(
    group: Group, terms: Terms, measures: Measures, blocks: Blocks, signs: NDArray[np.int8]
) -> list[dict[str, Any]]:
    """One line a setting, model and share: both RECLs as they would have been.

    Where the same model trained with memory resets is known, it takes the model's place in the
    group once.

    Args:
        measures: of the group as it is.
    """
    lines = []
    for variation in variations(group.contexts, terms.threshold):
        if variation.is_coarser:
            losses = group.losses[:, variation.rows]
            found = measure(losses, terms.shares, blocks, signs)
        else:
            found = measures.after(int(variation.rows[0]))
        lines += list(_lines(group, terms, variation, found))
    as_given = Variation(WITH_RESETS, np.arange(len(group.contexts)), terms.threshold)
    for name, other in group.with_resets.items():
        losses = group.losses.copy()
        losses[group.names.index(name)] = other
        found = measure(losses, terms.shares, blocks, signs)
        lines += [each for each in _lines(group, terms, as_given, found) if each["model"] == name]
    return lines


def variations(contexts: tuple[int, ...], threshold: float) -> Iterator[Variation]:
    """Those that leave at least one step."""
    every = np.arange(len(contexts))
    steps = set(np.diff(contexts).tolist())
    for factor in COARSER:
        if len(contexts) > factor:
            name = f"step {factor * min(steps)}" if len(steps) == 1 else f"1 context in {factor}"
            yield Variation(name, every[::factor], threshold)
    for skipped in LATER:
        if len(contexts) > skipped + 1:
            yield Variation(f"first context {contexts[skipped]}", every[skipped:], threshold)
    for other in (times * threshold for times in THRESHOLDS):
        yield Variation(f"threshold {other:g}", every, other)


def _lines(
    group: Group, terms: Terms, variation: Variation, found: Measures
) -> Iterator[dict[str, Any]]:
    counts = found.counts(variation.threshold)
    above_null = found.counts_above_null(variation.threshold)
    rows = variation.rows.tolist()
    for model, name in enumerate(group.names):
        for share, r in enumerate(terms.shares):
            yield {
                "setting": variation.setting,
                "model": name,
                "r": r,
                "recl": group.walk(model, counts[model, share], rows).length,
                "recl_above_null": group.walk(model, above_null[model, share], rows).length,
            }
