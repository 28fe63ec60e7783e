"""The adaptive embedding looks every token up in its own table, in the order of the tokens."""

from typing import Any

import pytest
import torch

from tests.models.dense import embedded
from tests.models.test_softmax import CUT_PATTERNS, V, adaptive

SETTINGS = [
    {},
    {"d_embed": 5},
    {"cutoffs": (2, 5)},
    {"cutoffs": (2, 5), "d_embed": 5},
    {"cutoffs": (2, 5), "div_val": 2},
    {"cutoffs": (2, 5), "div_val": 4, "d_embed": 16},
    {"cutoffs": (1, 2, 6), "div_val": 2},
    {"div_val": 2, "d_embed": 5},
]


def assert_looks_up(model: Any, tokens: torch.Tensor) -> None:
    expected = [embedded(model, token) for token in tokens.flatten().tolist()]
    got = model.embedding(tokens)
    assert got.shape == (*tokens.shape, 8)
    assert torch.allclose(got.flatten(0, 1), torch.stack(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_every_token_gets_its_row_projected_and_scaled(settings: dict[str, Any]):
    assert_looks_up(adaptive(**settings), torch.tensor([[6, 0, 3, 5], [1, 2, 4, 6]]))


@pytest.mark.parametrize("token", range(V))
def test_a_batch_may_touch_one_cluster_only(token: int):
    assert_looks_up(adaptive(cutoffs=(2, 5), div_val=2), torch.tensor([[token, token]]))


def test_every_pattern_of_cutoffs():
    tokens = torch.tensor([[6, 0, 3, 5, 1, 2, 4]])
    for cuts in CUT_PATTERNS:
        assert_looks_up(adaptive(cutoffs=cuts, div_val=2, d_embed=64), tokens)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_gradients_equal_those_of_a_lookup(settings: dict[str, Any]):
    model, tokens = adaptive(**settings), torch.tensor([[6, 0, 3, 0, 1, 4]])
    wanted = [*model.embedding.parameters()]
    weights = torch.arange(48.0, dtype=torch.float64).view(6, 8)
    got = torch.autograd.grad((model.embedding(tokens)[0] * weights).sum(), wanted)
    rows = torch.stack([embedded(model, token) for token in tokens[0].tolist()])
    expected = torch.autograd.grad((rows * weights).sum(), wanted)
    for one, other in zip(got, expected, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-10)


def test_softmax_and_embedding_share_their_tables():
    model = adaptive(cutoffs=(2, 5), div_val=2)
    shapes = [tuple(p.shape) for name, p in model.named_parameters() if "tables" in name]
    assert shapes == [(2, 8), (3, 4), (2, 2)]
