"""Invariants of every model, each as the largest amount by which a model breaks it.

Each function takes a small model in float64 and token ids, and returns a difference in nats (or of
remembered states) that is 0 but for rounding. Causality counts any influence at all.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from txlbench.config.base import AttentionSpan
from txlbench.models.interface import LanguageModel, State

ROUNDING = 1e-12
"""Losses of equal computations in float64 differ by less; influences are larger."""
TOLERANCE = 1e-9
"""Computations in another order differ by less."""


def strengthen(model: LanguageModel) -> None:
    """Draws every weight anew: initial weights leave attention flat and biases zero."""
    for name, parameter in model.named_parameters():
        nn.init.normal_(parameter, 1.0 if name.endswith("norm.weight") else 0.0, 0.4)


def stream_losses(
    model: LanguageModel,
    tokens_BT: Tensor,
    cuts: Sequence[int],
    span: AttentionSpan,
    state: State | None = None,
) -> tuple[Tensor, State]:
    """Losses [B, sum(cuts)] of segments of the given lengths, memory carried; and the state."""
    state = model.initial_state(len(tokens_BT), span) if state is None else state
    losses, start = [], 0
    for length in cuts:
        hidden, state = model(tokens_BT[:, start : start + length], state)
        losses.append(model.losses(hidden, tokens_BT[:, start + 1 : start + length + 1]))
        start += length
    return torch.cat(losses, dim=1), state


def influence(
    model: LanguageModel, tokens: Tensor, cuts: Sequence[int], span: AttentionSpan, vocabulary: int
) -> Tensor:
    """The change of the loss at position q when input token p changes, [p, q].

    Every row of a batch is the same stream with another token changed. Targets stay as they are,
    so that a token acts as context only.
    """
    length = sum(cuts)
    rows = tokens[:, : length + 1].repeat(length + 1, 1)
    changed = rows.clone()
    places = torch.arange(length)
    changed[places, places] = (changed[places, places] + 1) % vocabulary
    state, losses, start = model.initial_state(length + 1, span), [], 0
    for cut in cuts:
        hidden, state = model(changed[:, start : start + cut], state)
        losses.append(model.losses(hidden, rows[:, start + 1 : start + cut + 1]))
        start += cut
    difference = torch.cat(losses, dim=1).detach()
    return (difference[:-1] - difference[-1]).abs()


def causality(
    model: LanguageModel, tokens: Tensor, cuts: Sequence[int], span: AttentionSpan, vocabulary: int
) -> float:
    """The largest influence of a token on a loss before it."""
    return _largest(influence(model, tokens[:1], cuts, span, vocabulary).tril(-1))


def memory_purity(
    model: LanguageModel, tokens: Tensor, cuts: Sequence[int], span: AttentionSpan
) -> float:
    """The largest change of an old state by a step of training from it."""
    first, *later = cuts
    _, state = stream_losses(model, tokens, [first], span)
    before = {name: tensor.clone() for name, tensor in state.tensors().items()}
    losses, _ = stream_losses(model, tokens[:, first:], later, span, state)
    if not (found := _changed(before, state)):  # else backward need not be possible
        losses.sum().backward()
        model.zero_grad()
        found = _changed(before, state)
    return found


def _changed(before: Mapping[str, Tensor], state: State) -> float:
    after = state.tensors()
    return max((_largest(after[name] - tensor) for name, tensor in before.items()), default=0.0)


def segments(model: LanguageModel, tokens: Tensor, cuts: Sequence[int]) -> float:
    """Segments with a memory that covers all before, against one pass without memory."""
    length = sum(cuts)
    whole, _ = stream_losses(model, tokens, [length], AttentionSpan(mem_len=0))
    parts, _ = stream_losses(model, tokens, cuts, AttentionSpan(mem_len=length))
    return _largest(whole - parts)


def contexts(model: LanguageModel, tokens: Tensor) -> float:
    """Losses of one pass, against each context read alone."""
    span, length = AttentionSpan(mem_len=0), tokens.shape[1] - 1
    whole, _ = stream_losses(model, tokens, [length], span)
    alone = [
        stream_losses(model, tokens[:, : context + 1], [context], span)[0][:, -1]
        for context in range(1, length + 1)
    ]
    return _largest(whole - torch.stack(alone, dim=1))


UNDERFLOW = 1e-300
"""Attention in float64 below which odds are lost, as beside keys of very large scores. NaN is not:
it has to show."""


def distance_alone(model: LanguageModel, tokens: Tensor, vocabulary: int) -> float:
    """The change of one key's odds against the query's own, by what is not their distance.

    In the first layer, whose inputs know nothing of other tokens: by a token put before the text,
    and by another token in the place of each that is neither key nor query.
    """
    text, length = tokens[:1, :-1], tokens.shape[1] - 1
    places = torch.arange(length)
    changed = text.repeat(length, 1)
    changed[places, places] = (changed[places, places] + 1) % vocabulary
    odds, lost = _first_odds(model, text)
    others, lost_there = _first_odds(model, changed)
    after_one = _first_odds(model, torch.cat([tokens[:1, -1:], text], dim=1))
    longer, lost_later = (each[..., 1:, 1:] for each in after_one)
    elsewhere = places[:, None] != places
    compared = (places[:, None] >= places) & elsewhere[:, :, None] & elsewhere[:, None, :]
    return max(
        _largest((others - odds).masked_fill(~compared | lost | lost_there, 0)),
        _largest((longer - odds).masked_fill(lost | lost_later, 0).tril()),
    )


def _first_odds(model: LanguageModel, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Logarithms of attention in the first layer over that to the query itself, [H, B, T, T].

    Beside them, where they are lost as attention has underflowed.
    """
    found: list[Tensor] = []

    def observe(layer: int, _: Tensor, attention: Tensor | None) -> None:
        if layer == 0 and attention is not None:
            found.append(attention.detach())

    model(tokens, model.initial_state(len(tokens), AttentionSpan(mem_len=0)), observe)
    logs = found[0].clamp(min=torch.finfo(found[0].dtype).tiny).log()
    small = found[0] < UNDERFLOW
    own, own_is_small = (each.diagonal(dim1=-2, dim2=-1)[..., None] for each in (logs, small))
    return logs - own, small | own_is_small


def cut_dependence(
    model: LanguageModel,
    tokens: Tensor,
    one: Sequence[int],
    other: Sequence[int],
    span: AttentionSpan,
) -> float:
    """The dependence of losses on where segments are cut.

    Nothing where every query sees the same number of keys. Else a query early in a segment sees
    fewer of them, and each layer adds to the difference: deeper layers see farther by memory.
    """
    first, _ = stream_losses(model, tokens, one, span)
    second, _ = stream_losses(model, tokens, other, span)
    return _largest(first - second)


def batches(
    model: LanguageModel, tokens: Tensor, cuts: Sequence[int], span: AttentionSpan
) -> float:
    """Each stream alone, against all of them in a batch."""
    together, _ = stream_losses(model, tokens, cuts, span)
    alone = [stream_losses(model, row[None], cuts, span)[0] for row in tokens]
    return _largest(together - torch.cat(alone))


def dense_softmax(model: LanguageModel, tokens: Tensor, span: AttentionSpan) -> float:
    """Losses against log-probabilities of the whole vocabulary, and these against a sum of one."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    hidden, _ = model(inputs, model.initial_state(len(tokens), span))
    log_probs = model.log_probs(hidden.flatten(0, 1))
    picked = log_probs.gather(1, targets.reshape(-1, 1)).reshape(targets.shape)
    unity = log_probs.logsumexp(dim=1)
    return max(_largest(model.losses(hidden, targets) + picked), _largest(unity))


def _largest(difference: Tensor) -> float:
    """The largest absolute value; infinite where something is no number."""
    if not difference.numel():
        return 0.0
    largest = float(difference.detach().abs().max())
    return largest if largest == largest else float("inf")
