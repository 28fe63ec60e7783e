"""FlexAttention with positions added inside equals the plain path: values and gradients.

It is for CUDA devices. On a CPU PyTorch computes it unfused, by the same rules for scores and
masks, and refuses gradients though it has them: that refusal is lifted here.
"""

from functools import partial
from typing import Any

import pytest
import torch
from torch.nn.attention import flex_attention as flex

from tests.models.kernels.test_cpu import MODELS, SPANS, trained
from tests.models.subjects import transformer
from txlbench.config.base import AttentionSpan
from txlbench.models import dropout
from txlbench.models.attention import Attention
from txlbench.models.kernels.cuda import flexible_attention

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes attention flexible unless it is watched; counts how often."""
    calls: list[int] = []

    def counted(*given: Any) -> Any:
        calls.append(1)
        return flexible_attention(*given)

    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    monkeypatch.setattr(
        Attention, "_kernel", lambda _, __, scoring: None if scoring.watched else counted
    )
    return calls


QUICK = [
    ("xl", "memory"),
    ("xl", "half loss"),
    ("xl, norm first", "clamped"),
    ("shaw, biases", "same length, short"),
    ("absolute", "no memory"),
    ("alibi", "memory"),
    ("rotary", "half loss"),
    ("rope", "memory"),
    ("fox", "memory"),
    ("t5", "same length"),
]


@pytest.mark.parametrize(
    ("model", "span"),
    [
        pytest.param(model, span, marks=() if (model, span) in QUICK else pytest.mark.full)
        for model in MODELS
        for span in SPANS
    ],
)
def test_it_equals_the_plain_path(model: str, span: str, used: list[int]):
    built = transformer(**MODELS[model], dropout=0.0).train()
    for forget in (False, True):
        got, expected = (trained(built, SPANS[span], forget, watch) for watch in (False, True))
        for one, other in zip(got, expected, strict=True):
            assert (one is None) == (other is None)
            assert one is None or torch.allclose(one, other, rtol=0, atol=1e-10)
    assert len(used) == 2 * 3 * 2


def test_bfloat16_stays_close_to_float32(used: list[int]):
    model, span = transformer("xl").float().train(), AttentionSpan(mem_len=6)
    exact, *_ = trained(model, span, forget=False, watch=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss, *gradients = trained(model, span, forget=False, watch=False)
    assert used
    assert abs(loss - exact) / exact < 1e-2
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)


def test_a_cuda_device_takes_it_where_there_is_no_dropout_of_attention():
    plain = transformer("xl", d_head=16)
    dropping = transformer("xl", d_head=16, dropatt=0.1).train()
    small = transformer("xl", d_head=5)

    class Scoring:
        watched = False
        encoding = plain.encoding

    def kernel(model: Any) -> Any:
        return model.blocks[0].attention._kernel("cuda", Scoring)

    assert kernel(plain) is flexible_attention
    assert kernel(small) is None
    assert kernel(dropping) is None
    assert kernel(dropping.eval()) is flexible_attention


def test_attention_dropout_on_a_device_keeps_no_probabilities_for_the_gradient(
    monkeypatch: pytest.MonkeyPatch,
):
    """The plain path there, with PyTorch's own masks, computed twice: here on the CPU."""
    monkeypatch.setattr(dropout, "_drawn_here", lambda _: False)
    monkeypatch.setattr(Attention, "_kernel", lambda *_: None)
    model, found = transformer("xl", dropout=0.2, dropatt=0.3).train(), {}
    recomputes = Attention._recomputes
    for device in ("cpu", "cuda"):
        kept: list[torch.Tensor] = []
        monkeypatch.setattr(
            Attention, "_recomputes", lambda self, _, s, d=device: recomputes(self, d, s)
        )
        with torch.autograd.graph.saved_tensors_hooks(partial(keep, kept), lambda t: t):
            found[device] = trained(model, SPANS["memory"], forget=True, watch=False)
        largest = max((tensor.numel() for tensor in kept if tensor.dim() == 4), default=0)
        assert (largest >= 2 * 5 * 5 * 10) == (device == "cpu")  # [H, B, T, S]
    for one, other in zip(found["cpu"], found["cuda"], strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, other, rtol=0, atol=1e-12)


def keep(kept: list[torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    kept.append(tensor)
    return tensor
