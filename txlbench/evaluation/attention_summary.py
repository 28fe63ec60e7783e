"""What the sums of an `AttentionTally` say of each head, and of each term of its scores."""

import math
from collections.abc import Iterator, Sequence

from torch import Tensor

from txlbench.evaluation.attention_tally import BLOCKS, AttentionTally
from txlbench.records.attention_schema import HeadAttention, TermAttention
from txlbench.records.context_schema import Interval

DIGITS = 5
Head = tuple[int, int]
"""Layer and head, both from 1."""


def head_attention(tally: AttentionTally, has_first: bool) -> Iterator[HeadAttention]:
    """Each head on average over the queries that counted.

    Args:
        has_first: windows or sinks, whose first keys are told of.
    """
    total = float(tally.counts_Z.sum())
    for layer, sums in sorted(tally.layers.items()):
        profiles, firsts = sums.profile_HD / total, (sums.first_H / total).tolist()
        for head, profile_D in enumerate(profiles):
            yield HeadAttention(
                layer=layer + 1,
                head=head + 1,
                distance=_interval(sums.distance_ZH[:, head], tally.counts_Z),
                entropy=_interval(sums.entropy_ZH[:, head], tally.counts_Z),
                first=firsts[head] if has_first else None,
                profile=rounded(profile_D),
            )


def term_attention(tally: AttentionTally) -> Iterator[TermAttention]:
    """Each term of each head."""
    for layer, sums in sorted(tally.layers.items()):
        for letter, term in sums.terms.items():
            scales, spreads = term.scales(sums.seen_D), term.spreads(sums.seen_D)
            for head, profile_D in enumerate(term.profile_HD / tally.counts_Z.sum()):
                yield TermAttention(
                    layer=layer + 1,
                    head=head + 1,
                    term=letter,
                    scale=float(scales[head]),
                    spread=float(spreads[head]),
                    profile=rounded(profile_D),
                )


def _interval(sums_Z: Tensor, counts_Z: Tensor) -> Interval:
    """The mean over queries, with a t-interval from the means of blocks of consecutive ones."""
    value = float(sums_Z.sum() / counts_Z.sum())
    there = counts_Z > 0
    means, blocks = sums_Z[there] / counts_Z[there], int(there.sum())
    if blocks < BLOCKS // 2:
        return Interval(value=value)
    from scipy.special import stdtrit

    half = float(means.std()) / math.sqrt(blocks) * float(stdtrit(blocks - 1, 0.975))
    return Interval(value=value, low=value - half, high=value + half)


def widest_heads(heads: Sequence[HeadAttention]) -> list[Head]:
    """The head that looks farthest back in the first, the middle and the last layer."""
    layers = sorted({each.layer for each in heads})
    chosen = dict.fromkeys((layers[0], layers[(len(layers) - 1) // 2], layers[-1]))
    found = []
    for layer in chosen:
        of_layer = [each for each in heads if each.layer == layer]
        found.append((layer, max(of_layer, key=lambda each: each.distance.value).head))
    return found


def rounded(values: Tensor) -> tuple[float, ...]:
    """Numbers that are only drawn, to `DIGITS` significant digits."""
    return tuple(float(f"{value:.{DIGITS}g}") for value in values.tolist())
