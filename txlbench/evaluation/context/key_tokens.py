"""Key tokens and LongPPL (Fang et al. 2025): perplexity over tokens that need the long context.

With K the short and L the long context, LSD(t) = l(K, t) - l(L, t) and LCL(t) = -l(L, t); a token
is key where LSD > 2 and LCL > -2, and LongPPL is exp of the mean of l(L, t) over key tokens. The
published code takes the keys from a large evaluator model and shares one short window among 1,024
tokens; here K is exact, the measured context nearest to L / 8 (theirs is 4,096 of 32,768), and keys
come from the group's best model, or from the scored model itself.

Choosing and scoring by the same losses is biased: noise that makes l(L, t) small also makes t key.
So both are given, and beside the share of keys stands what noise alone would give: the share with
K and L exchanged.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from txlbench.evaluation.context.curve import Means
from txlbench.evaluation.context.resampling import Resampling, interval
from txlbench.evaluation.recl.metric import ModelGroup
from txlbench.records.context_schema import KeyTokens

ALPHA = 2.0
"""Least LSD of a key token, nats."""
BETA = -2.0
"""Least LCL of a key token, nats."""
SHORTER = 8
"""Times that the short context is within the long one, as published."""
LARGEST = 700.0
"""Nats beyond which exp is no longer a floating-point number."""
FEWEST_KEYS = 10
"""Key tokens with fewer of which LongPPL has no interval worth the name."""


def are_key(short: NDArray[np.float64], long: NDArray[np.float64]) -> NDArray[np.bool_]:
    """[T]: whether a token is key, from its losses [T] with the short and the long context."""
    found: NDArray[np.bool_] = (short - long > ALPHA) & (-long > BETA)
    return found


def short_context(contexts: Sequence[int]) -> int:
    """Index of the context nearest to an eighth of the last, by logarithm; never the last one."""
    wanted = contexts[-1] / SHORTER
    return int(np.abs(np.log(np.asarray(contexts[:-1]) / wanted)).argmin())


def key_tokens(group: ModelGroup, means: Means, resampling: Resampling) -> Iterator[KeyTokens]:
    """LongPPL of each model: keys by the best model of the group, then by the model itself."""
    for model in range(len(group.names)):
        for chooser in dict.fromkeys((means.best, model)):
            yield _score(group, model, chooser, resampling)


def _score(group: ModelGroup, model: int, chooser: int, resampling: Resampling) -> KeyTokens:
    row = short_context(group.contexts)
    short, long = group.losses[chooser, row], group.losses[chooser, -1]
    keys, reverse = are_key(short, long), are_key(long, short)
    share, by_chance = resampling.means(np.stack([keys, reverse]).astype(np.float64))
    longppl = None
    if np.count_nonzero(keys) >= FEWEST_KEYS:
        mean = resampling.means(group.losses[model, -1], keys)
        longppl = interval(np.exp(np.minimum(mean, LARGEST)))
    return KeyTokens(
        model=group.names[model],
        chosen_by=group.names[chooser],
        shorter=group.contexts[row],
        longer=group.contexts[-1],
        tokens=int(np.count_nonzero(keys)),
        share=interval(share),
        by_chance=interval(by_chance),
        net=interval(share - by_chance),
        longppl=longppl,
    )
