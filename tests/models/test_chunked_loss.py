"""Cross-entropy in parts of the vocabulary equals the whole, and never holds all logits."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from txlbench.models import chunked_loss
from txlbench.models.chunked_loss import word_losses

N, E, V = 12, 3, 50


def given(dtype: torch.dtype = torch.float64, words: int = V, rows: int = N) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((rows, E), (words, E), (words,))
    parts = [torch.randn(s, generator=generator, dtype=dtype).requires_grad_() for s in shapes]
    return (*parts, torch.randint(words, (rows,), generator=generator))


def values_and_gradients(*parts: Any) -> tuple[torch.Tensor, ...]:
    losses = word_losses(*parts)
    weights = torch.linspace(-1, 2, len(losses), dtype=losses.dtype)
    return losses, *torch.autograd.grad(losses @ weights, parts[:3])


@pytest.mark.parametrize("logits", [1, N * 7, N * V - 1])
def test_parts_equal_the_whole(logits: int, monkeypatch: Any):
    expected = values_and_gradients(*given())
    monkeypatch.setattr(chunked_loss, "LOGITS", logits)
    got = values_and_gradients(*given())
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(got, expected, strict=True))


def test_the_gradient_is_that_of_the_values(monkeypatch: Any):
    monkeypatch.setattr(chunked_loss, "LOGITS", N * 7)
    *parts, targets = given()
    assert torch.autograd.gradcheck(lambda *p: word_losses(*p, targets), tuple(parts))


def test_bfloat16_products_give_float32_losses(monkeypatch: Any):
    expected = values_and_gradients(*given(torch.float32))
    monkeypatch.setattr(chunked_loss, "LOGITS", N * 7)
    with torch.autocast("cpu", torch.bfloat16):
        got = values_and_gradients(*given(torch.float32))
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == torch.float32
        assert 0 < (one - other).norm() < 0.02 * other.norm()


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that an operation gives."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor):
            self.elements = max(self.elements, out.numel())
        return out


@pytest.mark.parametrize("train", [True, False])
def test_no_tensor_exceeds_the_logits_held_at_once(train: bool, monkeypatch: Any):
    rows, words = 100, 2000
    monkeypatch.setattr(chunked_loss, "LOGITS", 8000)
    parts = given(torch.float32, words, rows)
    with Largest() as largest, torch.set_grad_enabled(train):
        losses = word_losses(*parts)
        if train:
            losses.sum().backward()
    assert rows * words / 30 < largest.elements <= 8000


def test_few_words_are_done_at_once():
    with Largest() as largest:
        word_losses(*given())
    assert largest.elements == N * V
