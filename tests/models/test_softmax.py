"""The adaptive softmax equals a dense one: values, order, gradients, for every way of cutting."""

from itertools import combinations, product
from typing import Any

import pytest
import torch

from tests.models.dense import dense_log_probs
from txlbench.config.clusters import softmax_projections
from txlbench.config.model import ModelConfig
from txlbench.errors import UserError
from txlbench.evaluation.invariants import strengthen
from txlbench.models.factory import build_model
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
