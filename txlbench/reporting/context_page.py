"""The page of `context`: what is said of each model first, and the text with coloured tokens."""

from collections.abc import Iterator

from txlbench.records.context_schema import ContextRecord, TokenView
from txlbench.reporting.context_words import Verdict, summary, verdicts
from txlbench.reporting.pages.page import Answer, PagePart, Remark, Span

STRONGEST = 1.0
"""Nats of credit at which the colour of a token is full."""
HELPED, HARMED = "0, 114, 178", "213, 94, 0"
"""Red, green and blue of tokens that context helped and harmed."""
DEEPEST = 0.45
"""Of a full colour, so that letters on it can be read on a light and on a dark ground."""


def context_lead(record: ContextRecord) -> str:
    """What was measured, in a line."""
    tokens = " and ".join(f"{group.tokens:,}" for group in record.groups)
    places = sorted({s.split for s in record.models.values() if s.split})
    corpora = {str(s.settings["corpus"]) for s in record.models.values() if "corpus" in s.settings}
    where = f" of the split {' and '.join(places)}" if places else ""
    where += f" of {' and '.join(sorted(corpora))}" if corpora else ""
    return (
        f"Each of {tokens} {record.targets}{where} was predicted from exactly c "
        f"{record.counted_in} before it, for {len(record.contexts)} contexts c from "
        f"{record.contexts[0]} to {record.contexts[-1]}. "
        f"In brackets: 95 % intervals, of these {record.targets} only."
    )


def context_answers(record: ContextRecord) -> tuple[Answer, ...]:
    """How much context each model uses, what for, and what is not resolved; then all together."""
    together = tuple(summary(record))
    last = (Answer((Remark("All models", together),)),) if together else ()
    return (*map(_answer, verdicts(record)), *last)


def _answer(verdict: Verdict) -> Answer:
    about = f"{verdict.group}: {verdict.model}" if verdict.group else verdict.model
    found = {
        "How much context": verdict.amount,
        "What for": verdict.purpose,
        "Not resolved": verdict.unresolved,
    }
    return Answer(tuple(Remark(name, lines) for name, lines in found.items() if lines), about)


def coloured_texts(record: ContextRecord) -> Iterator[PagePart]:
    """For each model the span as text, tokens blue as context helped, or orange as it harmed."""
    for group in record.named_groups():
        if group.view is None or not group.view.is_text:
            continue
        first, last = group.view.contexts[0], group.view.contexts[-1]
        note = (
            f"Blue: {last} tokens of context instead of {first} lower the loss; orange: they raise "
            f"it; full colour from {STRONGEST:g} nat. Rest the pointer on a token to see which "
            "stretch did."
        )
        for model in group.models:
            spans = tuple(_spans(group.view, model))
            yield PagePart(f"Which tokens context helped: {model}", (note,), text=spans)


def _spans(view: TokenView, model: str) -> Iterator[Span]:
    for token, position, credits, loss in zip(
        view.tokens, view.positions, view.credit[model], view.losses[model], strict=True
    ):
        total = sum(credits)
        about = f"token {position:,}: loss {loss:.3f} nats"
        for low, high, credit in zip(view.contexts, view.contexts[1:], credits, strict=False):
            about += f"\n{low + 1} to {high} back: {credit:+.3f}"
        depth = min(1.0, abs(total) / STRONGEST) * DEEPEST
        yield Span(token, about, HELPED if total > 0 else HARMED, depth)
