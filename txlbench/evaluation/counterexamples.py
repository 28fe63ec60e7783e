"""Searches a model for a token that sees what it must not, and names both positions.

`invariants` says by how much a small model breaks a rule; here texts are long enough for what goes
wrong at a distance, and each finding is a pair that a person can look up. Every text is read alone,
so that a model that mixes streams is not taken for one that sees the future.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from txlbench.config.base import AttentionSpan
from txlbench.evaluation.invariants import ROUNDING, TOLERANCE, stream_losses
from txlbench.models.interface import LanguageModel

STEPS = 3
"""Tokens at the end that are read one by one, as generation does."""


@dataclass(frozen=True)
class Counterexample:
    """One place where an invariant does not hold.

    Attributes:
        invariant: future, streams, repeats, segments or cache.
        change: how much a loss differs, in nats; infinite where one is no number.
        text: what differs, and where, as a sentence.
    """

    invariant: str
    change: float
    text: str


def counterexamples(
    model: LanguageModel,
    tokens_BT: Tensor,
    cuts: Sequence[int],
    spans: Sequence[AttentionSpan],
    vocabulary: int,
    coherent: bool,
) -> Iterator[Counterexample]:
    """The first counterexample of each invariant, under the first span where there is one.

    Args:
        model: small, in float64 and evaluation mode.
        tokens_BT: at least two streams of sum(cuts) + 1 tokens.
        cuts: lengths of segments.
        coherent: whether memory means the same in the next segment.
    """
    stepped = [*cuts[:-1], cuts[-1] - STEPS, *[1] * STEPS]
    with torch.no_grad():
        searches: tuple[Callable[[AttentionSpan], Counterexample | None], ...] = (
            lambda span: repeats(model, tokens_BT, cuts, span),
            lambda span: future(model, tokens_BT[:1], cuts, span, vocabulary),
            lambda span: streams(model, tokens_BT, cuts, span, vocabulary),
            lambda span: cache(model, tokens_BT, stepped, span),
        )
        for search in searches:
            if (first := next(filter(None, map(search, spans)), None)) is not None:
                yield first
        if coherent and (found := segments(model, tokens_BT[:1], stepped)) is not None:
            yield found


def repeats(
    model: LanguageModel, tokens_BT: Tensor, cuts: Sequence[int], span: AttentionSpan
) -> Counterexample | None:
    """Losses that are no number, or that a second reading of the same text does not give."""
    first, _ = stream_losses(model, tokens_BT, cuts, span)
    if not first.isfinite().all():
        stream, place = (~first.isfinite()).nonzero()[0].tolist()
        text = f"the loss at position {place} of stream {stream} is {float(first[stream, place])}"
        return Counterexample("repeats", float("inf"), text)
    again, _ = stream_losses(model, tokens_BT, cuts, span)
    return _difference("repeats", first, again, "reading the same text twice, in evaluation mode,")


def future(
    model: LanguageModel,
    tokens_1T: Tensor,
    cuts: Sequence[int],
    span: AttentionSpan,
    vocabulary: int,
) -> Counterexample | None:
    """The earliest position whose loss changes with a later input token, and that token.

    Targets stay as they are, so that a token acts as input alone.
    """
    plain = _losses(model, tokens_1T, tokens_1T, cuts, span)
    seen: dict[int, list[int]] = {}
    largest = 0.0
    for place in range(1, sum(cuts)):
        changed = tokens_1T.clone()
        changed[0, place] = (changed[0, place] + 1) % vocabulary
        moved = (_losses(model, changed, tokens_1T, cuts, span) - plain).abs()[0, :place]
        for query in (~(moved <= ROUNDING)).nonzero().flatten().tolist():
            seen.setdefault(query, []).append(place)
        largest = max(largest, float(moved.nan_to_num(torch.inf).max()))
    if not seen:
        return None
    query = min(seen)
    later = seen[query][0]
    pairs = sum(map(len, seen.values()))
    text = (
        f"position {query} saw position {later}, {later - query} ahead: its loss changes with that "
        f"token ({pairs:,} such pairs, at positions {query} to {max(seen)}; {_where(span)})"
    )
    return Counterexample("future", largest, text)


def _losses(
    model: LanguageModel,
    inputs_BT: Tensor,
    targets_BT: Tensor,
    cuts: Sequence[int],
    span: AttentionSpan,
) -> Tensor:
    """Losses [B, sum(cuts)] of targets that are those of another text."""
    state, losses, start = model.initial_state(len(inputs_BT), span), [], 0
    for cut in cuts:
        hidden, state = model(inputs_BT[:, start : start + cut], state)
        losses.append(model.losses(hidden, targets_BT[:, start + 1 : start + cut + 1]))
        start += cut
    return torch.cat(losses, dim=1)


def streams(
    model: LanguageModel,
    tokens_BT: Tensor,
    cuts: Sequence[int],
    span: AttentionSpan,
    vocabulary: int,
) -> Counterexample | None:
    """The first stream whose losses change with the text of another."""
    plain, _ = stream_losses(model, tokens_BT, cuts, span)
    for other in range(len(tokens_BT)):
        changed = tokens_BT.clone()
        changed[other] = (changed[other] + 1) % vocabulary
        moved, _ = stream_losses(model, changed, cuts, span)
        apart = (moved - plain).abs()
        apart[other] = 0
        if not apart.max() <= ROUNDING:
            stream, place = (~(apart <= ROUNDING)).nonzero()[0].tolist()
            text = (
                f"stream {stream} saw stream {other}: its loss at position {place} changes with "
                f"the other's text ({_where(span)})"
            )
            return Counterexample("streams", float(apart.nan_to_num(torch.inf).max()), text)
    return None


def cache(
    model: LanguageModel, tokens_BT: Tensor, cuts: Sequence[int], span: AttentionSpan
) -> Counterexample | None:
    """The first loss that is another one with the state that evaluation and generation use."""
    plain, _ = stream_losses(model, tokens_BT, cuts, span)
    state = model.evaluation_state(model.initial_state(len(tokens_BT), span))
    cached, _ = stream_losses(model, tokens_BT, cuts, span, state)
    what = f"reading with cached keys and values ({_where(span)})"
    return _difference("cache", plain, cached, what)


def segments(model: LanguageModel, tokens_BT: Tensor, cuts: Sequence[int]) -> Counterexample | None:
    """The first loss that differs between segments with all memory and one pass."""
    length = sum(cuts)
    whole, _ = stream_losses(model, tokens_BT, [length], AttentionSpan(mem_len=0))
    parts, _ = stream_losses(model, tokens_BT, cuts, AttentionSpan(mem_len=length))
    what = f"cutting {length} tokens into segments of {', '.join(map(str, cuts))}"
    return _difference("segments", whole, parts, what)


def _difference(invariant: str, one: Tensor, other: Tensor, what: str) -> Counterexample | None:
    apart = (one - other).abs()
    if apart.max() <= TOLERANCE:
        return None
    stream, place = (~(apart <= TOLERANCE)).nonzero()[0].tolist()
    change = float(apart.nan_to_num(torch.inf).max())
    return Counterexample(
        invariant, change, f"{what} changes the loss at position {place} of stream {stream}"
    )


def _where(span: AttentionSpan) -> str:
    kind = ", exactly so many keys" if span.same_length else ""
    return f"mem_len {span.mem_len}{kind}"
