"""Everything that context.json holds of one group, from losses that are there.

What the losses do not allow is listed as missing, and the other measures stand.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.context.curve import (
    ICL_CONTEXTS,
    Means,
    context_curves,
    icl_scores,
    information_steps,
)
from txlbench.evaluation.context.key_tokens import FEWEST_KEYS, key_tokens
from txlbench.evaluation.context.mutual_information import (
    LEAST_R_SQUARED,
    NoExponentError,
    Start,
    bigram_counts,
    entropy,
    exponents,
    unigram_losses,
)
from txlbench.evaluation.context.power_law import NoFitError, power_law
from txlbench.evaluation.context.resampling import Resampling
from txlbench.evaluation.context.token_classes import (
    TokenText,
    partitions,
    token_classes,
    why_undivided,
)
from txlbench.evaluation.context.token_view import NoSpanError, token_view
from txlbench.evaluation.recl.metric import ModelGroup, ReclTerms
from txlbench.records.context_schema import (
    ContextGroup,
    Exponent,
    Missing,
    MutualInformation,
    PowerLaw,
    TokenClass,
    TokenView,
)

ONE_CONTEXT = "one context only was measured"
NO_TEXT = "the text of the tokens is not known"
NO_TOKENS = "several tokenizers share no tokens"
NOT_DENSE = "needs losses at contexts 1, 2, 3, ...; --dense L measures 1 to 2 L"
EVERY = 16
"""Of dense contexts so many are passed over where the dependence of neighbours is measured."""


@dataclass(eq=False)
class _Gaps:
    """Collects the measures that are missing, those of one reason together."""

    found: list[Missing] = field(default_factory=list)

    def add(self, measure: str, reason: str, models: tuple[str, ...] = ()) -> None:
        self.found.append(Missing(measure=measure, reason=reason, models=models))


def context_group(
    group: ModelGroup,
    terms: ReclTerms,
    text: TokenText | None = None,
    dense: ModelGroup | None = None,
    why_not_dense: str = NOT_DENSE,
    by_token: bool = True,
) -> ContextGroup:
    """All measures of a group.

    Args:
        text: of the scored tokens, as far as it is known.
        dense: the same models at contexts 1, 2, 3, ..., perhaps on other tokens.
        why_not_dense: what is said where there is none.
        by_token: whether losses are of single tokens, not of units that tokenizers share.
    """
    gaps = _Gaps()
    resampling = Resampling.of(group.losses, group.positions, terms.seed)
    if resampling.problem:
        gaps.add("intervals", resampling.problem)
    means = Means.of(group, resampling)
    if len(group.contexts) < 2:
        for measure in ("gain", "information", "key tokens"):
            gaps.add(measure, ONE_CONTEXT)
    scores = tuple(icl_scores(group, means))
    if not scores:
        gaps.add("ICL score", "needs contexts {} and {}".format(*ICL_CONTEXTS))
    several = len(group.contexts) > 1
    keys = tuple(key_tokens(group, means, resampling)) if several and by_token else ()
    if not by_token:
        gaps.add("LongPPL", NO_TOKENS)
    for each in keys:
        if each.longppl is None and each.model == each.chosen_by:
            why = f"{each.tokens} key tokens, fewer than {FEWEST_KEYS}"
            gaps.add("LongPPL", why, (each.model,))
    return ContextGroup(
        models=group.names,
        longest=group.longest,
        best=group.names[means.best],
        tokens=len(group.positions),
        blocks=resampling.blocks,
        curves=tuple(context_curves(group, means, resampling, terms.threshold)),
        power_laws=tuple(_power_laws(group, means, gaps)),
        icl_scores=scores,
        information=tuple(information_steps(group, means)),
        classes=tuple(
            _classes(
                group, text, resampling, terms.threshold, gaps, NO_TEXT if by_token else NO_TOKENS
            )
        ),
        key_tokens=keys,
        mutual_information=_mutual_information(dense, text, terms.seed, gaps, why_not_dense),
        view=_view(dense or group, text, gaps),
        missing=tuple(gaps.found),
    )


def _power_laws(group: ModelGroup, means: Means, gaps: _Gaps) -> Iterable[PowerLaw]:
    for name, own in zip(group.names, means.array, strict=True):
        try:
            yield power_law(name, group.contexts, own)
        except NoFitError as error:
            gaps.add("power law", str(error), (name,))


def _classes(
    group: ModelGroup,
    text: TokenText | None,
    resampling: Resampling,
    threshold: float,
    gaps: _Gaps,
    why_no_text: str,
) -> Iterable[TokenClass]:
    """The classes of every partition that divides the tokens into two classes or more."""
    if text is None:
        gaps.add("classes of tokens", why_no_text)
        return
    if text.counts is None:
        gaps.add("occurrences in training", "the training text is not known")
    for partition in partitions(text, group.positions, group.contexts):
        found = tuple(token_classes(group, partition, resampling, threshold))
        if len(found) > 1:
            yield from found
        else:
            gaps.add(partition.kind, why_undivided(partition))


def _mutual_information(
    dense: ModelGroup | None, text: TokenText | None, seed: int, gaps: _Gaps, why_not: str
) -> MutualInformation | None:
    if dense is None:
        gaps.add("L²M exponent", why_not)
        return None
    resampling = Resampling.of(dense.losses[:, ::EVERY], dense.positions, seed)
    if resampling.problem:
        gaps.add("interval of the L²M exponent", resampling.problem)
    start, counted = _start(text, dense.positions, resampling)
    found: list[Exponent] = []
    for name, losses in zip(dense.names, dense.losses, strict=True):
        try:
            own = list(exponents(name, resampling.means(losses), start))
            found += own
            if own[-1].exponent is None:
                fit = own[-1].r_squared
                why = "not always above 0" if fit is None else f"R² {fit:.2f} < {LEAST_R_SQUARED:g}"
                gaps.add("L²M exponent", f"I(L) is no power of L ({why})", (name,))
        except NoExponentError as error:
            gaps.add("L²M exponent", str(error), (name,))
    if start is None:
        gaps.add("n-gram correction of the L²M exponent", NO_TEXT)
    return MutualInformation(
        tokens=len(dense.positions),
        blocks=resampling.blocks,
        empty=None if start is None else "unigram counts",
        bigram_entropy=None if start is None else start.bigram,
        counted=counted,
        exponents=tuple(found),
    )


def _start(
    text: TokenText | None, positions: NDArray[np.int64], resampling: Resampling
) -> tuple[Start | None, int]:
    """What stands in for an empty context, and the number of tokens it was counted on."""
    if text is None:
        return None, 0
    counted = text.ids if text.training is None else text.training
    tokens = np.asarray(text.ids)[positions]
    counts = text.counts
    if counts is None or int(tokens.max()) >= len(counts):
        counts = np.bincount(np.asarray(text.ids, dtype=np.int64))
    pairs = bigram_counts(counted)
    empty = resampling.means(unigram_losses(counts, tokens))
    return Start(empty, entropy(pairs)), int(pairs.sum()) + 1


def _view(group: ModelGroup, text: TokenText | None, gaps: _Gaps) -> TokenView | None:
    try:
        return token_view(group, text)
    except NoSpanError as error:
        gaps.add("token view", str(error))
        return None
