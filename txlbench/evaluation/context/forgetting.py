"""Forgetting curve: does a model recall a text that it has just read (Liu et al. 2024)?

A model reads A A', teacher forced; one with a memory of its own, other text first, which fills that
memory as in its training. The second half of A' is scored, where A' = A, and where the
same A' follows another text: what is gained is recall, since the target is the same. Fine length:
the longest text that is copied nearly without fault; coarse length: the longest at which the copy
is better than language modelling.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.context.resampling import Resampling, interval
from txlbench.evaluation.recl.bootstrap import RESAMPLES
from txlbench.records.context_schema import Interval
from txlbench.records.finding_schema import BlockCount
from txlbench.records.probe_schema import ForgettingCurve, ForgettingPoint

FINE = 0.99
"""Greedy accuracy on the second half that counts as a copy without fault."""
LEVEL = 0.05
"""Of the one-sided paired t-tests of all lengths together (Bonferroni)."""
FEWEST_TEXTS = 10


def scored_tokens(length: int) -> int:
    """Tokens of the second half of a text."""
    return length - length // 2


def text_starts(tokens: int, length: int, texts: int) -> NDArray[np.int64]:
    """Where up to `texts` texts of `length` tokens begin that do not overlap, evenly spread."""
    count = min(texts, tokens // length)
    return np.arange(count) * (tokens // max(1, count))


def copy_windows(
    ids: NDArray[Any], length: int, starts: NDArray[np.int64], lead: int = 0
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """A A of each text A, and B A where B is the text half of all texts away.

    Args:
        lead: tokens from a quarter of `ids` away that stand before each, to fill a memory.
    """
    texts = [np.asarray(ids[start : start + length], dtype=np.int64) for start in starts.tolist()]
    others = [*texts[len(texts) // 2 :], *texts[: len(texts) // 2]]
    places = starts[:, None] + len(ids) // 4 + np.arange(lead)
    leads = np.take(ids, places, mode="wrap").astype(np.int64)
    copies = [np.concatenate([*each, each[1]]) for each in zip(leads, texts, strict=True)]
    return copies, [np.concatenate(each) for each in zip(leads, others, texts, strict=True)]


@dataclass(frozen=True, eq=False)
class Recall:
    """Values of N texts of one length, each a mean over the second half of A'.

    Attributes:
        hits, losses: [2, N]: after A itself, and after another text.
    """

    hits: NDArray[np.float64]
    losses: NDArray[np.float64]

    @classmethod
    def of(cls, copies: NDArray[np.floating], others: NDArray[np.floating]) -> "Recall":
        """From losses and hits [N, S, 2] of both kinds of windows."""
        means = np.stack([copies, others]).mean(axis=2, dtype=np.float64)
        return cls(means[..., 1], means[..., 0])


def forgetting_curve(recalls: Mapping[int, Recall], seed: int) -> ForgettingCurve:
    """The curve over lengths, ascending, at least one."""
    points, fine = [], []
    for length, recall in recalls.items():
        texts = recall.hits.shape[1]
        resampling = _resampling(texts, [seed, length])
        hits, losses = resampling.means(recall.hits), resampling.means(recall.losses)
        fine.append(np.where(hits[0] >= FINE, length, 0))
        points.append(
            ForgettingPoint(
                length=length,
                texts=texts,
                copy_accuracy=interval(hits[0]),
                other_accuracy=interval(hits[1]),
                accuracy_gain=interval(hits[0] - hits[1]),
                copy_loss=interval(losses[0]),
                other_loss=interval(losses[1]),
                loss_gain=interval(losses[1] - losses[0]),
                p=paired_p(recall.hits[0] - recall.hits[1]),
            )
        )
    longest = np.max(fine, axis=0)
    low, high = np.quantile(longest[1:], [0.025, 0.975], method="inverted_cdf").tolist()
    return ForgettingCurve(
        points=tuple(points),
        fine=Interval(value=longest[0], low=low, high=high),
        coarse=_coarse(points),
    )


def _resampling(texts: int, seed: Sequence[int]) -> Resampling:
    """Texts drawn one by one: they do not overlap."""
    drawn = np.random.default_rng(seed).multinomial(texts, np.full(texts, 1 / texts), RESAMPLES)
    copies = np.concatenate([np.ones((1, texts)), drawn])
    return Resampling(np.arange(texts), copies, BlockCount(count=texts, positions=1))


def _coarse(points: Sequence[ForgettingPoint]) -> int:
    above = (each.length for each in points if each.p <= LEVEL / len(points))
    return max(above, default=0)


def paired_p(differences: NDArray[np.float64]) -> float:
    """One-sided p of a t-test that the mean of `differences` [N] is above 0."""
    from scipy.special import stdtr

    mean, deviation = differences.mean(), differences.std(ddof=1)
    if deviation == 0:
        return 0.0 if mean > 0 else 1.0
    return float(stdtr(len(differences) - 1, -mean / (deviation / np.sqrt(len(differences)))))
