"""Losses target by target, each fed by hand what its measurement says it sees; slow and plain."""

import torch

from txlbench.config.base import AttentionSpan


def losses_of(model, ids, start, end, state):
    """Losses of predictions [start, end) read as one segment, and the state after them."""
    window = torch.as_tensor(ids[start : end + 1].astype("int64"))[None]
    with torch.no_grad():
        hidden, state = model.forward(window[:, :-1], state)
        return model.losses(hidden, window[:, 1:])[0].tolist(), state


def stream(model, ids, start, end, tgt_len, span):
    """(loss, position in the segment) of predictions [start, end), read from `start` on."""
    state, found = model.initial_state(1, span), {}
    for begin in range(start, end, tgt_len):
        losses, state = losses_of(model, ids, begin, min(begin + tgt_len, end), state)
        found.update({begin + i: (loss, i) for i, loss in enumerate(losses)})
    return found


def windows(model, ids, start, end, tgt_len, stride, clamp_len=None):
    """(loss, position in the window): the first window scores all, others their last `stride`."""
    span, found = AttentionSpan(mem_len=0, clamp_len=clamp_len), {}
    for target in range(start, end):
        beyond = max(0, target - start - tgt_len)
        skipped = beyond // stride + 1 if target - start >= tgt_len else 0
        begin = start + skipped * stride
        losses, _ = losses_of(model, ids, begin, target + 1, model.initial_state(1, span))
        found[target] = (losses[-1], target - begin)
    return found
