"""The state that evaluation uses gives what the plain one gives, for every model and view."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.models.subjects import SUBJECTS, Subject, text, transformer
from txlbench.evaluation.invariants import stream_losses
from txlbench.models.interface import View

every_model = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.name)

VIEWS = {
    "no memory": View(0),
    "short memory": View(3),
    "long memory": View(11),
    "memory never full": View(100),
    "same length": View(5, same_length=True),
    "same length, shorter than a segment": View(2, same_length=True),
    "clamped": View(8, clamp_len=3),
    "clamped same length": View(8, clamp_len=6, same_length=True),
    "stride": View(6, stride=2),
    "stride, no memory": View(0, stride=3),
    "stride, same length": View(4, same_length=True, stride=3),
}
every_view = pytest.mark.parametrize("view", list(VIEWS.values()), ids=list(VIEWS))
FEW = ["short memory", "same length", "stride", "stride, no memory"]
few_views = pytest.mark.parametrize("view", [VIEWS[name] for name in FEW], ids=FEW)
CUTS = [4, 4, 1, 7, 4, 4, 4, 1, 1, 2]


def states(model: Any, batch: int, view: View) -> list[Any]:
    """The plain one and the one for evaluation, empty."""
    plain = model.initial_state(batch, view)
    return [plain, model.evaluation_state(plain)]


def both(model: Any, tokens: Tensor, cuts: list[int], view: View) -> tuple[Tensor, Tensor]:
    """Losses of the same segments by the plain state and by the evaluation state."""
    plain, fast = states(model, len(tokens), view)
    return (
        stream_losses(model, tokens, cuts, view, plain)[0],
        stream_losses(model, tokens, cuts, view, fast)[0],
    )


@every_model
@every_view
def test_losses_equal_those_of_the_plain_state(subject: Subject, view: View):
    for batch in (1, 3, 10):
        plain, fast = both(subject.build(), text(33, batch), CUTS, view)
        assert torch.allclose(plain, fast, rtol=0, atol=1e-10)


@every_model
@few_views
def test_in_float32_they_differ_by_rounding(subject: Subject, view: View):
    plain, fast = both(subject.build().float(), text(33, batch=3), CUTS, view)
    assert torch.allclose(plain, fast, rtol=0, atol=1e-5)


@every_model
def test_in_bfloat16_no_further_from_float32_than_the_plain_state(subject: Subject):
    model, tokens, view = subject.build().float(), text(33, batch=10), View(8)
    exact, _ = stream_losses(model, tokens, CUTS, view)
    with torch.autocast("cpu", torch.bfloat16):
        plain, fast = both(model, tokens, CUTS, view)
    assert fast.dtype == torch.float32
    assert (fast - exact).abs().mean() < 1.1 * (plain - exact).abs().mean()


@every_model
@few_views
def test_a_stream_forgets_as_in_the_plain_state(subject: Subject, view: View):
    model, tokens = subject.build(), text(21, batch=3)
    rows, got = torch.tensor([False, True, False]), []
    for state in (
        model.initial_state(3, view),
        model.evaluation_state(model.initial_state(3, view)),
    ):
        first, state = stream_losses(model, tokens, [4, 4], view, state)
        after, state = stream_losses(model, tokens[:, 8:], [3, 1, 4], view, state.forget(rows))
        again, _ = stream_losses(model, tokens[:, 16:], [3, 1], view, state.forget(~rows))
        got.append(torch.cat([first, after, again], dim=1))
    assert torch.allclose(*got, rtol=0, atol=1e-10)


@every_model
@few_views
def test_it_goes_on_from_what_the_plain_state_remembers(subject: Subject, view: View):
    model, tokens = subject.build(), text(21, batch=3)
    _, state = stream_losses(model, tokens, [4, 4], view)
    state = state.forget(torch.tensor([False, False, True]))
    plain, _ = stream_losses(model, tokens[:, 8:], [4, 3, 4], view, state)
    fast, _ = stream_losses(model, tokens[:, 8:], [4, 3, 4], view, model.evaluation_state(state))
    assert torch.allclose(plain, fast, rtol=0, atol=1e-10)


@every_model
@few_views
def test_it_survives_being_taken_apart_and_put_together(subject: Subject, view: View):
    model, tokens = subject.build(), text(13, batch=2)
    state = model.evaluation_state(model.initial_state(2, view))
    _, state = stream_losses(model, tokens, [4, 2], view, state)
    copied = {name: tensor.clone() for name, tensor in state.tensors().items()}
    assert all(len(tensor) == 2 for tensor in copied.values())
    restored = model.evaluation_state(model.initial_state(2, view)).replace(copied)
    expected, _ = stream_losses(model, tokens[:, 6:], [3, 3], view, state)
    got, _ = stream_losses(model, tokens[:, 6:], [3, 3], view, restored)
    assert torch.equal(expected, got)


@every_model
def test_the_observer_sees_what_it_sees_in_the_plain_pass(subject: Subject):
    model, tokens, view, seen = subject.build(), text(9, batch=2), View(3, same_length=True), []

    def watch(layer: int, hidden: Tensor, attention: Tensor | None) -> None:
        seen.append((hidden, torch.zeros(1) if attention is None else attention))

    for state in (
        model.initial_state(2, view),
        model.evaluation_state(model.initial_state(2, view)),
    ):
        _, state = model(tokens[:, :4], state)
        hidden, _ = model(tokens[:, 4:], state, watch)
        seen.append((hidden, torch.zeros(1)))
    plain, fast = seen[: len(seen) // 2], seen[len(seen) // 2 :]
    for expected, got in zip(plain, fast, strict=True):
        for one, other in zip(expected, got, strict=True):
            assert torch.allclose(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("encoding", ["xl", "shaw"])
def test_an_encoding_that_keeps_nothing_between_passes_gives_the_same(encoding: str):
    """As a plug-in that overrides `prepare` and `score` alone."""
    model, view = transformer(encoding), VIEWS["short memory"]
    prepare = model.encoding.prepare
    model.encoding.recall = lambda kept, keys, clamp_len, like, _: prepare(keys, clamp_len, like)
    plain, fast = both(model, text(33, batch=3), CUTS, view)
    assert torch.allclose(plain, fast, rtol=0, atol=1e-10)
