"""The state that evaluation uses gives what the plain one gives, for every model and span."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.subjects import SUBJECTS, Subject, text
from txlbench.config.base import AttentionSpan
from txlbench.evaluation.invariants import stream_losses

CACHED = [subject for subject in SUBJECTS if subject.remembers_inputs]
every_model = pytest.mark.parametrize("subject", CACHED, ids=lambda s: s.name)

SPANS = {
    "no memory": AttentionSpan(mem_len=0),
    "short memory": AttentionSpan(mem_len=3),
    "long memory": AttentionSpan(mem_len=11),
    "memory never full": AttentionSpan(mem_len=100),
    "same length": AttentionSpan(mem_len=5, same_length=True),
    "same length, shorter than a segment": AttentionSpan(mem_len=2, same_length=True),
    "clamped": AttentionSpan(mem_len=8, clamp_len=3),
    "clamped same length": AttentionSpan(mem_len=8, clamp_len=6, same_length=True),
    "stride": AttentionSpan(mem_len=6, stride=2),
    "stride, no memory": AttentionSpan(mem_len=0, stride=3),
    "stride, same length": AttentionSpan(mem_len=4, same_length=True, stride=3),
}
FEW = ["short memory", "same length", "stride", "stride, no memory"]
few_spans = pytest.mark.parametrize("span", [SPANS[name] for name in FEW], ids=FEW)
CUTS = [4, 4, 1, 7, 4, 4, 4, 1, 1, 2]


def states(model: Any, batch: int, span: AttentionSpan) -> list[Any]:
    """The plain one and the one for evaluation, empty."""
    plain = model.initial_state(batch, span)
    return [plain, model.evaluation_state(plain)]


def both(model: Any, tokens: Tensor, cuts: list[int], span: AttentionSpan) -> tuple[Tensor, Tensor]:
    """Losses of the same segments by the plain state and by the evaluation state."""
    plain, fast = states(model, len(tokens), span)
    return (
        stream_losses(model, tokens, cuts, span, plain)[0],
        stream_losses(model, tokens, cuts, span, fast)[0],
    )


USUAL = ("xl", "xl-pre-lnorm", "shaw-bias", "absolute", "al-rfou", "lstm", "qrnn", "rope", "fox")
"""Models with a cache of their own kind; the others are tried at every span in the full tests."""


@pytest.mark.parametrize(
    ("subject", "span"),
    [
        pytest.param(
            subject,
            span,
            id=f"{subject.name}, {name}",
            marks=() if subject.name in USUAL or name in FEW else pytest.mark.full,
        )
        for subject in CACHED
        for name, span in SPANS.items()
    ],
)
def test_losses_equal_those_of_the_plain_state(subject: Subject, span: AttentionSpan):
    for batch in (1, 3, 10):
        plain, fast = both(subject.build(), text(33, batch), CUTS, span)
        assert torch.allclose(plain, fast, rtol=0, atol=1e-10)


@every_model
@few_spans
def test_in_float32_they_differ_by_rounding(subject: Subject, span: AttentionSpan):
    plain, fast = both(subject.build().float(), text(33, batch=3), CUTS, span)
    assert torch.allclose(plain, fast, rtol=0, atol=1e-5)


@every_model
def test_in_bfloat16_no_further_from_float32_than_the_plain_state(subject: Subject):
    model, tokens, span = subject.build().float(), text(33, batch=10), AttentionSpan(mem_len=8)
    exact, _ = stream_losses(model, tokens, CUTS, span)
    with torch.autocast("cpu", torch.bfloat16):
        plain, fast = both(model, tokens, CUTS, span)
    assert fast.dtype == torch.float32
    assert (fast - exact).abs().mean() < 1.1 * (plain - exact).abs().mean()


@every_model
@few_spans
def test_a_stream_forgets_as_in_the_plain_state(subject: Subject, span: AttentionSpan):
    model, tokens = subject.build(), text(21, batch=3)
    rows, got = torch.tensor([False, True, False]), []
    for state in (
        model.initial_state(3, span),
        model.evaluation_state(model.initial_state(3, span)),
    ):
        first, state = stream_losses(model, tokens, [4, 4], span, state)
        after, state = stream_losses(model, tokens[:, 8:], [3, 1, 4], span, state.reset(rows))
        again, _ = stream_losses(model, tokens[:, 16:], [3, 1], span, state.reset(~rows))
        got.append(torch.cat([first, after, again], dim=1))
    assert torch.allclose(*got, rtol=0, atol=1e-10)


@every_model
@few_spans
def test_it_goes_on_from_what_the_plain_state_remembers(subject: Subject, span: AttentionSpan):
    model, tokens = subject.build(), text(21, batch=3)
    _, state = stream_losses(model, tokens, [4, 4], span)
    state = state.reset(torch.tensor([False, False, True]))
    plain, _ = stream_losses(model, tokens[:, 8:], [4, 3, 4], span, state)
    fast, _ = stream_losses(model, tokens[:, 8:], [4, 3, 4], span, model.evaluation_state(state))
    assert torch.allclose(plain, fast, rtol=0, atol=1e-10)


@every_model
@few_spans
def test_it_survives_being_taken_apart_and_put_together(subject: Subject, span: AttentionSpan):
    model, tokens = subject.build(), text(13, batch=2)
    state = model.evaluation_state(model.initial_state(2, span))
    _, state = stream_losses(model, tokens, [4, 2], span, state)
    copied = {name: tensor.clone() for name, tensor in state.tensors().items()}
    assert all(len(tensor) == 2 for tensor in copied.values())
    restored = model.evaluation_state(model.initial_state(2, span)).replace(copied)
    expected, _ = stream_losses(model, tokens[:, 6:], [3, 3], span, state)
    got, _ = stream_losses(model, tokens[:, 6:], [3, 3], span, restored)
    assert torch.equal(expected, got)


@every_model
def test_the_observer_sees_what_it_sees_in_the_plain_pass(subject: Subject):
    model, tokens, span, seen = (
        subject.build(),
        text(9, batch=2),
        AttentionSpan(mem_len=3, same_length=True),
        [],
    )

    def watch(layer: int, hidden: Tensor, attention: Tensor | None) -> None:
        seen.append((hidden, torch.zeros(1) if attention is None else attention))

    for state in (
        model.initial_state(2, span),
        model.evaluation_state(model.initial_state(2, span)),
    ):
        _, state = model(tokens[:, :4], state)
        hidden, _ = model(tokens[:, 4:], state, watch)
        seen.append((hidden, torch.zeros(1)))
    plain, fast = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    for expected, got in zip(plain, fast, strict=True):
        for one, other in zip(expected, got, strict=True):
            assert torch.allclose(one, other, rtol=0, atol=1e-10)
