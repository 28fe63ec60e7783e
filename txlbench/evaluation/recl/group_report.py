"""Everything that `recl.json` holds about one group of models.

Beside both RECLs with their intervals: RECL with another step, first context, threshold or
training (sensitivity), and in every smaller group, since models of a group share a baseline.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.recl.bootstrap import bootstrap, interval_of, shares_of
from txlbench.evaluation.recl.metric import (
    ModelGroup,
    ReclTerms,
    count_of,
    effective_context_length,
    gains,
    limited,
)
from txlbench.evaluation.recl.null import Blocks, Measures, blocks_of, draw_signs, measure
from txlbench.records.finding_schema import (
    Baseline,
    BlockCount,
    ReclGroup,
    ReclResult,
    ScoredPositions,
    Sensitivity,
    Subgroup,
)

COARSER = (2, 3)
"""Factors by which the step between contexts is lengthened."""
LATER = (1, 2)
"""Numbers of contexts left out at the start."""
THRESHOLDS = (0.5, 2.0)
"""Factors of the threshold."""
WITH_RESETS = "trained with resets"
"""The setting in which short contexts were met in training."""
LARGEST = 4
"""Models of the largest smaller group."""
FEW = 500
"""Hardest tokens under which a RECL is worth a warning."""


@dataclass(frozen=True)
class Variation:
    """Another choice of contexts, or of the threshold.

    Attributes:
        setting: how it differs from the main result.
        rows: indexes of the contexts that are walked.
    """

    setting: str
    rows: NDArray[np.intp]
    threshold: float

    @property
    def is_coarser(self) -> bool:
        """Whether its steps are others than those of the main result."""
        return bool(np.diff(self.rows)[0] > 1)


def sensitivity(
    group: ModelGroup, terms: ReclTerms, measures: Measures, blocks: Blocks, signs: NDArray[np.int8]
) -> list[Sensitivity]:
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
        lines += [each for each in _lines(group, terms, as_given, found) if each.model == name]
    return lines


def variations(contexts: tuple[int, ...], threshold: float) -> Iterator[Variation]:
    """The variations that leave at least one step."""
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
    group: ModelGroup, terms: ReclTerms, variation: Variation, found: Measures
) -> Iterator[Sensitivity]:
    counts = found.counts(variation.threshold)
    above_null = found.counts_above_null(variation.threshold)
    rows = variation.rows.tolist()
    for model, name in enumerate(group.names):
        for share, r in enumerate(terms.shares):
            yield Sensitivity(
                setting=variation.setting,
                model=name,
                r=r,
                recl=group.walk(model, counts[model, share], rows).length,
                recl_above_null=group.walk(model, above_null[model, share], rows).length,
            )


def subgroups(group: ModelGroup, terms: ReclTerms) -> list[Subgroup]:
    """One line for each model and share of every smaller group of up to four models."""
    lines = []
    for members in _members(len(group.names)):
        found = gains(group.losses[list(members)], terms.shares).relative >= terms.threshold
        names = tuple(group.names[model] for model in members)
        for counts, model in zip(found, members, strict=True):
            for r, steps in zip(terms.shares, counts, strict=True):
                end = group.walk(model, steps)
                line = Subgroup(
                    models=names, model=group.names[model], r=r, recl=end.length, capped=end.capped
                )
                lines.append(line)
    return lines


def _members(models: int) -> Iterator[tuple[int, ...]]:
    for size in range(1, min(LARGEST, models - 1) + 1):
        yield from combinations(range(models), size)


def group_report(
    group: ModelGroup,
    terms: ReclTerms,
    papers: Mapping[str, Mapping[str, float | str]] | None = None,
) -> ReclGroup:
    """Everything that recl.json holds of `group`.

    Args:
        papers: the paper's numbers by model.

    Raises:
        UserError: with fewer than two contexts, or too few tokens for the test against noise.
    """
    blocks = blocks_of(group.positions, group.losses)
    random = np.random.default_rng(terms.seed)
    signs = draw_signs(random, blocks.count)
    measures = measure(group.losses, terms.shares, blocks, signs)
    steps = bootstrap(group.losses, terms.shares, terms.threshold, blocks, random)
    return ReclGroup(
        models=group.names,
        longest=group.longest,
        tokens=len(group.positions),
        positions=_scored(group.positions),
        blocks=BlockCount(count=blocks.count, positions=blocks.length),
        losses={
            name: tuple(means)
            for name, means in zip(group.names, group.losses.mean(axis=2).tolist(), strict=True)
        },
        loss_errors={
            name: tuple(errors.tolist())
            for name, errors in zip(
                group.names, _standard_errors(group.losses, blocks), strict=True
            )
        },
        baselines=tuple(
            Baseline(r=r, perplexity=tuple(line.tolist()))
            for r, line in zip(terms.shares, measures.gains.baseline, strict=True)
        ),
        warnings=tuple(warnings(group, terms)),
        results=tuple(_results(group, terms, measures, steps, papers or {})),
        subgroups=tuple(subgroups(group, terms)),
        sensitivity=tuple(sensitivity(group, terms, measures, blocks, signs)),
        ecl=_ecl(group, terms),
    )


def _standard_errors(losses: NDArray[np.float64], blocks: Blocks) -> NDArray[np.float64]:
    """Of the means of losses [M, C, T] over tokens, which within a block may be correlated."""
    deviations = losses - losses.mean(axis=2, keepdims=True)
    starts = np.flatnonzero(np.diff(blocks.index, prepend=-1))
    sums = np.add.reduceat(deviations, starts, axis=2)
    variance = np.square(sums).sum(axis=2) * blocks.count / (blocks.count - 1)
    return np.sqrt(variance) / losses.shape[2]


def _scored(positions: NDArray[np.int64]) -> ScoredPositions:
    """Where the tokens lie in their split: every `step`-th of a number of stretches."""
    apart = np.diff(positions)
    step = int(apart.min())
    return ScoredPositions(
        first=int(positions[0]),
        last=int(positions[-1]),
        step=step,
        stretches=1 + int(np.count_nonzero(apart > step)),
    )


def warnings(group: ModelGroup, terms: ReclTerms) -> list[str]:
    """Warnings against believing too much."""
    tokens = len(group.positions)
    few = [(r, count_of(r, tokens)) for r in terms.shares if count_of(r, tokens) < FEW]
    found = [
        f"r = {r:g} is {count:,} of {tokens:,} tokens, fewer than {FEW}: the RECL is uncertain"
        for r, count in few
    ]
    for name, losses in zip(group.names, group.losses, strict=True):
        if losses.min() < 0:
            found.append(f"{name} has losses below 0, which -log P in nats never is")
        means = losses.mean(axis=1)
        best, excess = int(means.argmin()), float(np.expm1(means[-1] - means.min()))
        if excess >= terms.threshold:
            found.append(
                f"{name} is best at a context of {group.contexts[best]}; at {group.contexts[-1]} "
                f"its perplexity is {100 * excess:.1f} % higher, as beyond what it was trained on"
            )
    return found


def _results(
    group: ModelGroup,
    terms: ReclTerms,
    measures: Measures,
    steps: NDArray[np.intp],
    papers: Mapping[str, Mapping[str, float | str]],
) -> Iterator[ReclResult]:
    counts = measures.counts(terms.threshold)
    above_null = measures.counts_above_null(terms.threshold)
    for model, name in enumerate(group.names):
        for share, r in enumerate(terms.shares):
            here = (model, share)
            end = group.walk(model, counts[here])
            paper, above = (
                [limited(group.contexts[taken], group.longest[model]) for taken in line]
                for line in steps[:, model, share]
            )
            yield ReclResult(
                model=name,
                r=r,
                recl=end.length,
                capped=end.capped,
                limited_by=end.limited_by,
                gains=tuple(measures.gains.relative[here].tolist()),
                differences=tuple(measures.gains.differences[here].tolist()),
                net_gains=tuple(measures.net_gains[here].tolist()),
                p=tuple(measures.p[here].tolist()),
                recl_above_null=group.walk(model, above_null[here]).length,
                interval=interval_of(paper),
                shares=shares_of(paper),
                interval_above_null=interval_of(above),
                shares_above_null=shares_of(above),
                paper=papers.get(name, {}).get(f"recl_r{float(r)}"),
            )


def _ecl(group: ModelGroup, terms: ReclTerms) -> dict[str, int]:
    found = {}
    for model, name in enumerate(group.names):
        length = effective_context_length(group.losses[model], group.contexts, terms.threshold)
        found[name] = limited(length, group.longest[model])
    return found
