"""RECL of a group of models (Dai et al. 2019, Appendix C), and ECL of one (Khandelwal et al. 2018).

l_i(c, t) is model i's loss on token t given c predecessors, b(c, t) the least loss of the group,
T the r n tokens with the largest b(c, t), and
    f_i(c, c') = mean over T of min(b(c, t), l_i(c', t)),
    g_i(c, c') = (exp f_i(c, c) - exp f_i(c, c')) / exp f_i(c, c).
f_i(c, c) is the mean of b, the same for every model. The paper does not say whether T is chosen
again for every c; b(c, t) depends on c, so here it is. A walk goes from the first context on for
as long as a step counts; where it stops is the RECL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray


def count_of(share: float, tokens: int) -> int:
    """ceil(r n), where 0.07 of 100 is 7 although its product is a little more; at least 1."""
    return int(counts_of(share, np.array(tokens)))


def counts_of(share: float, tokens: NDArray[np.intp]) -> NDArray[Any]:
    """`count_of` for several numbers of tokens."""
    return np.maximum(1, np.ceil(share * tokens - 1e-9)).astype(np.intp)


def hardest_first(losses: NDArray[np.float64]) -> NDArray[Any]:
    """Order of the last axis from the largest loss down, ties to the earlier."""
    return np.argsort(-losses, axis=-1, kind="stable")


def relative_gain(nats: Any) -> Any:
    """1 - exp(-x): the share of perplexity that x nats less take away."""
    return -np.expm1(np.minimum(-nats, 700.0))


@dataclass(frozen=True, eq=False)
class Gains:
    """Gains of M models at R shares over the S = C - 1 steps from one context to the next.

    Attributes:
        relative: [M, R, S], g_i(c, c').
        baseline: [R, S], exp f_i(c, c), a perplexity.
    """

    relative: NDArray[np.float64]
    baseline: NDArray[np.float64]

    @property
    def differences(self) -> NDArray[np.float64]:
        """[M, R, S]: exp f_i(c, c) - exp f_i(c, c'), in perplexity."""
        return self.baseline * self.relative


def gains(losses: NDArray[np.float64], shares: Sequence[float]) -> Gains:
    """The gains of the group whose `losses` are [M, C, T]."""
    baseline = losses.min(axis=0)[:-1]
    order = hardest_first(baseline)
    helped = np.minimum(baseline, losses[:, 1:])
    counts = [count_of(share, losses.shape[2]) for share in shares]
    before = _means(baseline, order, counts)
    after = np.stack([_means(each, order, counts) for each in helped])
    return Gains(relative_gain(before - after), np.exp(np.minimum(before, 700.0)))


def _means(
    values: NDArray[np.float64], order: NDArray[np.intp], counts: Sequence[int]
) -> NDArray[np.float64]:
    """[R, S]: means of [S, T] `values` over the first tokens of each order."""
    ranked = np.take_along_axis(values, order, axis=1)
    return np.stack([ranked[:, :count].mean(axis=1) for count in counts])


@dataclass(frozen=True)
class Walk:
    """Where a model's walk ended.

    Attributes:
        length: the relative effective context length, never above what the model can use.
        capped: whether the last context was reached, so that a longer list might give more.
        limited_by: "longest" where the model can use no more.
    """

    length: int
    capped: bool
    limited_by: Literal["longest"] | None


def walk(counts: NDArray[np.bool_], contexts: Sequence[int], longest: int | None) -> Walk:
    """The walk of a model whose steps [S] count or not."""
    steps = int(np.logical_and.accumulate(counts).sum())
    reached = contexts[steps]
    is_limited = longest is not None and reached >= longest
    return Walk(
        length=limited(reached, longest),
        capped=steps == len(contexts) - 1,
        limited_by="longest" if is_limited else None,
    )


def limited(length: int, longest: int | None) -> int:
    """`length`, or the most that the model can use."""
    return length if longest is None else min(length, longest)


@dataclass(frozen=True)
class ReclTerms:
    """Settings that decide RECL beside the losses.

    Attributes:
        shares: values of r, the share of tokens that are the hardest.
        threshold: relative gain that makes a step count.
        seed: random seed of the sign-flip test and the bootstrap.
    """

    shares: tuple[float, ...] = (0.1, 0.5, 1.0)
    threshold: float = 0.01
    seed: int = 0


@dataclass(frozen=True, eq=False)
class ModelGroup:
    """Losses of M models on the same T tokens at the same C contexts.

    Attributes:
        losses: [M, C, T], nats, float64.
        contexts: [C], ascending.
        positions: [T], ascending.
        longest: [M], the most predecessors that each model can use, None without limit.
        with_resets: by name, losses [C, T] of the same model trained with memory resets, so that
            short contexts are not unfamiliar to it; of those models of which there is one.
    """

    names: tuple[str, ...]
    losses: NDArray[np.float64]
    contexts: tuple[int, ...]
    positions: NDArray[np.int64]
    longest: tuple[int | None, ...]
    with_resets: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)

    def walk(
        self, model: int, counts: NDArray[np.bool_], rows: Sequence[int] | None = None
    ) -> Walk:
        """Where the walk of one model ends over its steps [S], of contexts `rows` if not all."""
        contexts = self.contexts if rows is None else [self.contexts[row] for row in rows]
        return walk(counts, contexts, self.longest[model])


def effective_context_length(
    losses: NDArray[np.float64], contexts: Sequence[int], threshold: float
) -> int:
    """The shortest context from which on, up to the best, perplexity is within 1 % of the best.

    Khandelwal et al. (2018) compare with an unlimited context. Here it is the best of those
    measured: where contexts beyond training harm, the longest would make all of them look useless.
    The first context is an upper bound: shorter ones were not measured.

    Args:
        losses: [C, T] of one model, nats.
        threshold: the 1 % as a share.
    """
    means = losses.mean(axis=1)
    best = int(means.argmin())
    is_worse = np.expm1(np.minimum(means[:best] - means[best], 700.0)) >= threshold
    return contexts[int(np.flatnonzero(is_worse)[-1]) + 1 if is_worse.any() else 0]
