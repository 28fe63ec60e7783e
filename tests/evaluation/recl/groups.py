"""Groups to measure."""

import numpy as np

from txlbench.evaluation.recl.metric import ModelGroup


def stopping_at_300(models=2, tokens=1000, contexts=(100, 200, 300, 400, 500)):
    """Models whose gain stops exactly at 300: every token gains up to there, and none beyond."""
    hardness = 5 + np.random.default_rng(0).gamma(1, 3, tokens)
    gained = np.minimum(np.array(contexts), 300) / 1000
    losses = np.stack([hardness - gained[:, None] + 0.001 * model for model in range(models)])
    names = tuple("abcdefgh"[:models])
    return ModelGroup(names, losses, contexts, np.arange(tokens), (None,) * models)


def from_losses(losses, contexts=None, longest=None, spacing=1):
    models, number, tokens = losses.shape
    contexts = contexts or tuple(range(100, 100 * number + 100, 100))
    longest = longest or (None,) * models
    return ModelGroup(
        tuple("abcdefgh"[:models]), losses, contexts, spacing * np.arange(tokens), longest
    )
