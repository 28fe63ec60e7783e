"""RECL by the paper's formulas, one token after another in plain Python; slow and independent.

losses[i][c][t] is l_i(c, t) in nats; positions of contexts in their list stand for c.
"""

import math
from fractions import Fraction


def baseline(losses, c, t):
    return min(model[c][t] for model in losses)


def hardest(values, r):
    """Indexes of the ceil(r n) largest, ties to the earlier; r exactly as it is written."""
    count = max(1, math.ceil(Fraction(str(r)) * len(values)))
    return sorted(range(len(values)), key=lambda t: (-values[t], t))[:count]


def f(losses, i, c, c2, r):
    tokens = range(len(losses[0][0]))
    b = [baseline(losses, c, t) for t in tokens]
    chosen = hardest(b, r)
    return math.fsum(min(b[t], losses[i][c2][t]) for t in chosen) / len(chosen)


def gain(losses, i, c, c2, r):
    before, after = f(losses, i, c, c, r), f(losses, i, c, c2, r)
    return (math.exp(before) - math.exp(after)) / math.exp(before)


def recl(losses, i, r, contexts, threshold=0.01):
    c = 0
    while c + 1 < len(contexts) and gain(losses, i, c, c + 1, r) >= threshold:
        c += 1
    return contexts[c]


def net_gain(model, c, r):
    """Of one model alone, from context c to the next."""
    tokens = range(len(model[0]))
    chosen = hardest([max(model[c][t], model[c + 1][t]) for t in tokens], r)
    return 1 - math.exp(-math.fsum(model[c][t] - model[c + 1][t] for t in chosen) / len(chosen))


def chosen_by_own_loss(model, c, r):
    return hardest([max(model[c][t], model[c + 1][t]) for t in range(len(model[0]))], r)
