"""The adaptive softmax equals a dense one: values, order, gradients, for every way of cutting.

Cross-entropy in parts of the vocabulary equals the whole, and never holds all logits.
"""

from itertools import combinations, product
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.models.dense import dense_log_probs
from txlbench.config.model import ModelConfig, softmax_projections
from txlbench.errors import UserError
from txlbench.evaluation.invariants import strengthen
from txlbench.models import softmax
from txlbench.models.factory import build_model
from txlbench.models.softmax import word_losses
from txlbench.models.transformer import Transformer

V = 7
SMALL = {"n_layer": 1, "d_model": 8, "n_head": 1, "d_inner": 1}
CUT_PATTERNS = [cuts for size in range(V) for cuts in combinations(range(1, V), size)]


def adaptive(vocabulary: int = V, **settings: Any) -> Transformer:
    config = ModelConfig.model_validate({**SMALL, **settings})
    torch.manual_seed(2)
    model = build_model(config, vocabulary).double()
    strengthen(model)
    return model


def hidden(count: int, d_model: int = 8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(count, d_model, generator=generator, dtype=torch.float64)


def assert_equals_dense(model: Transformer, targets: torch.Tensor) -> None:
    hidden_ND = hidden(len(targets))
    expected = dense_log_probs(model, hidden_ND)
    got = model.log_probs(hidden_ND)
    assert torch.allclose(got, expected, rtol=0, atol=1e-12)
    assert torch.allclose(got.exp().sum(dim=1), torch.ones(len(targets)).double())
    losses = model.softmax.losses(hidden_ND, targets)
    picked = -expected[torch.arange(len(targets)), targets]
    assert torch.allclose(losses, picked, rtol=0, atol=1e-12)


@pytest.mark.parametrize("d_embed", [8, 5], ids=lambda d: f"d_embed={d}")
@pytest.mark.parametrize("tied", [False, True])
def test_every_pattern_of_cutoffs_equals_a_dense_softmax(d_embed: int, tied: bool):
    targets = torch.tensor([6, 0, 3, 5, 1, 2, 4, 6, 0])
    for cuts in CUT_PATTERNS:
        model = adaptive(cutoffs=cuts, d_embed=d_embed, tie_projs=[tied] * (len(cuts) + 1))
        assert_equals_dense(model, targets)


@pytest.mark.parametrize("cutoffs", [(2, 5), (1, 2), (3, 6)], ids=str)
@pytest.mark.parametrize(("div_val", "d_embed"), [(1, 8), (2, 8), (2, 16), (4, 16), (4, 19)])
def test_every_pattern_of_ties_equals_a_dense_softmax(
    cutoffs: tuple[int, ...], div_val: int, d_embed: int
):
    for ties in product([False, True], repeat=3):
        model = adaptive(cutoffs=cutoffs, div_val=div_val, d_embed=d_embed, tie_projs=ties)
        assert len(model.softmax.projections) == sum(softmax_projections(model.config))
        assert_equals_dense(model, torch.tensor([6, 0, 3, 5, 1]))


@pytest.mark.parametrize(
    "targets",
    [[], [0], [6], [0, 1, 1, 0], [6, 6, 5], [3, 4, 3], [1, 3, 6], [6, 3, 1]],
    ids=["no target", "head", "tail", "head only", "last only", "middle only", "one each", "down"],
)
@pytest.mark.parametrize("div_val", [1, 2])
def test_clusters_that_a_batch_does_not_touch(targets: list[int], div_val: int):
    model = adaptive(cutoffs=(2, 5), div_val=div_val)
    assert_equals_dense(model, torch.tensor(targets, dtype=torch.int64))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"d_embed": 5},
        {"cutoffs": (2, 5)},
        {"cutoffs": (2, 5), "d_embed": 5, "tie_projs": (False, True, False)},
        {"cutoffs": (2, 5), "div_val": 2, "tie_projs": (False, True, True)},
        {"cutoffs": (1, 2, 6), "div_val": 2, "tie_projs": (True, False, True, False)},
    ],
    ids=str,
)
def test_gradients_equal_the_dense_ones(settings: dict[str, Any]):
    model, targets = adaptive(**settings), torch.tensor([6, 0, 3, 5, 1, 3])
    hidden_ND = hidden(len(targets)).requires_grad_()
    wanted = [hidden_ND, *(p for p in model.parameters() if p.numel())]
    weights = torch.arange(1.0, 7.0, dtype=torch.float64)
    losses = model.softmax.losses(hidden_ND, targets)
    got = torch.autograd.grad(losses @ weights, wanted, allow_unused=True)
    dense = -dense_log_probs(model, hidden_ND)[torch.arange(6), targets]
    expected = torch.autograd.grad(dense @ weights, wanted, allow_unused=True)
    for one, other in zip(got, expected, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, other, rtol=0, atol=1e-11)
    assert sum(gradient is not None for gradient in got) >= 3


@pytest.mark.parametrize("cutoffs", [(7,), (3, 9), (2, 5, 7)], ids=str)
def test_cutoffs_beyond_the_vocabulary_are_refused(cutoffs: tuple[int, ...]):
    with pytest.raises(UserError, match=r"model\.cutoffs: .* vocabulary of 7; keep .* under 7"):
        adaptive(cutoffs=cutoffs)


def test_logits_in_bfloat16_are_normalised_in_float32():
    model = adaptive(cutoffs=(2, 5)).float()
    hidden_ND, targets = hidden(5).float(), torch.tensor([6, 0, 3, 5, 1])
    with torch.autocast("cpu", torch.bfloat16):
        log_probs = model.log_probs(hidden_ND)
        losses = model.softmax.losses(hidden_ND, targets)
    assert log_probs.dtype == losses.dtype == torch.float32
    assert (log_probs.exp().sum(dim=1) - 1).abs().max() < 1e-6


N, E, CHUNKED_LOSS_V = 12, 3, 50


def given(
    dtype: torch.dtype = torch.float64, words: int = CHUNKED_LOSS_V, rows: int = N
) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((rows, E), (words, E), (words,))
    parts = [torch.randn(s, generator=generator, dtype=dtype).requires_grad_() for s in shapes]
    return (*parts, torch.randint(words, (rows,), generator=generator))


def values_and_gradients(*parts: Any) -> tuple[torch.Tensor, ...]:
    losses = word_losses(*parts)
    weights = torch.linspace(-1, 2, len(losses), dtype=losses.dtype)
    return losses, *torch.autograd.grad(losses @ weights, parts[:3])


@pytest.mark.parametrize("logits", [1, N * 7, N * CHUNKED_LOSS_V - 1])
def test_parts_equal_the_whole(logits: int, monkeypatch: Any):
    expected = values_and_gradients(*given())
    monkeypatch.setattr(softmax, "LOGITS", logits)
    got = values_and_gradients(*given())
    assert all(torch.allclose(a, b, rtol=0, atol=1e-12) for a, b in zip(got, expected, strict=True))


def test_the_gradient_is_that_of_the_values(monkeypatch: Any):
    monkeypatch.setattr(softmax, "LOGITS", N * 7)
    *parts, targets = given()
    assert torch.autograd.gradcheck(lambda *p: word_losses(*p, targets), tuple(parts))


def test_bfloat16_products_give_float32_losses(monkeypatch: Any):
    expected = values_and_gradients(*given(torch.float32))
    monkeypatch.setattr(softmax, "LOGITS", N * 7)
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
    monkeypatch.setattr(softmax, "LOGITS", 8000)
    parts = given(torch.float32, words, rows)
    with Largest() as largest, torch.set_grad_enabled(train):
        losses = word_losses(*parts)
        if train:
            losses.sum().backward()
    assert rows * words / 30 < largest.elements <= 8000


def test_few_words_are_done_at_once():
    with Largest() as largest:
        word_losses(*given())
    assert largest.elements == N * CHUNKED_LOSS_V


class Waits(TorchDispatchMode):
    """Notes what makes a device wait for the host: numbers read, shapes that depend on values."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.found: list[str] = []
        tolist = torch.Tensor.tolist
        monkeypatch.setattr(
            torch.Tensor, "tolist", lambda tensor: (self.found.append("tolist"), tolist(tensor))[1]
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        indices = args[1] if "index" in str(func) and isinstance(args[1], list | tuple) else ()
        by_mask = any(index is not None and index.dtype == torch.bool for index in indices)
        if by_mask or str(func) in ("aten.nonzero.default", "aten._local_scalar_dense.default"):
            self.found.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_training_step_over_clusters_makes_a_device_wait_once_for_each_end(
    monkeypatch: pytest.MonkeyPatch,
):
    """Once for the embedding and once for the softmax, however many clusters and parts."""
    monkeypatch.setattr(softmax, "LOGITS", 40)
    config = ModelConfig(n_layer=1, d_model=16, n_head=2, cutoffs=(10, 20, 40), div_val=2)
    model = build_model(config, 60)
    tokens = torch.randint(60, (2, 30), generator=torch.Generator().manual_seed(1))
    with Waits(monkeypatch) as waits:
        hidden = model.embedding(tokens)
        model.losses(hidden, tokens).sum().backward()
    assert waits.found == ["tolist", "tolist"]
