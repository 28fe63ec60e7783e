"""One token at a time: where the short way is taken, and that it is the long way's equal."""

from typing import Any

import pytest
import torch

from tests.models.subjects import ATTENDING, Subject, text, transformer
from txlbench.evaluation.invariants import stream_losses
from txlbench.models import cached_pass
from txlbench.models.interface import View


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the passes that take the short way."""
    taken: list[int] = []
    step = cached_pass.cached_step

    def counted(*given: Any) -> Any:
        taken.append(1)
        return step(*given)

    monkeypatch.setattr(cached_pass, "cached_step", counted)
    return taken


def read(model: Any, view: View, batch: int = 1) -> torch.Tensor:
    """Losses of 5 tokens at once and 20 one by one."""
    tokens = text(26, batch)
    state = model.evaluation_state(model.initial_state(batch, view))
    return stream_losses(model, tokens, [5, *[1] * 20], view, state)[0]


@pytest.mark.parametrize("subject", ATTENDING, ids=lambda s: s.name)
@pytest.mark.parametrize("view", [View(7), View(7, same_length=True), View(7, clamp_len=3)])
def test_single_tokens_take_it_and_lose_nothing(subject: Subject, view: View, steps: list[int]):
    model = subject.build()
    for batch in (1, 3):
        tokens = text(26, batch)
        plain = stream_losses(model, tokens, [5, *[1] * 20], view)[0]
        assert torch.allclose(read(model, view, batch), plain, rtol=0, atol=1e-10)
    # A plug-in whose scores are no such products goes the long way.
    assert len(steps) == (0 if subject.name == "key-decay" else 40)


@pytest.mark.parametrize("view", [View(0), View(6, stride=1)])
def test_other_ways_of_remembering_go_the_long_way(view: View, steps: list[int]):
    read(transformer("xl"), view)
    assert not steps


def test_so_do_watched_passes_forgetting_streams_and_16_bits(steps: list[int]):
    model, view, token = transformer("xl").float(), View(6), text(1)
    state = model.evaluation_state(model.initial_state(1, view))
    _, state = model(token, state)
    assert len(steps) == 1
    model(token, state.clone(), lambda *_: None)
    model(token, state.clone().forget(torch.tensor([True])))
    with torch.autocast("cpu", torch.bfloat16):
        model(token, model.evaluation_state(model.initial_state(1, view)))
    assert len(steps) == 1
