"""What a user's own encoding gets: every fast path, if its scores are terms; the contract anyway.

The contract suite and the kernels' tests run over these encodings too; see `subjects`.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.models.subjects import text, transformer
from txlbench.config.base import AttentionSpan
from txlbench.config.catalogue import ENCODINGS
from txlbench.models import attention, kv_cache
from txlbench.models.positions import alibi

SPAN = AttentionSpan(mem_len=6)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names the fast paths as they are taken."""
    names: list[str] = []
    for module, name in ((attention, "fused_attention"), (kv_cache, "decode_step")):
        function = getattr(module, name)

        def counted(*given: Any, name: str = name, function: Any = function) -> Any:
            names.append(name)
            return function(*given)

        monkeypatch.setattr(module, name, counted)
    return names


def test_a_bias_by_distance_takes_forty_lines():
    assert len(Path(alibi.__file__).read_text().splitlines()) <= 40


@pytest.mark.parametrize(("name", "fast"), [(name, name != "key-decay") for name in ENCODINGS])
def test_scores_in_terms_take_every_fast_path(name: str, fast: bool, taken: list[str]):
    model = transformer(name, d_head=16)
    model(text(8), model.initial_state(1, SPAN))
    assert taken == ["fused_attention"] * 2 * fast
    taken.clear()
    state = model.evaluation_state(model.initial_state(1, SPAN))
    for token in text(8).split(1, dim=1):
        _, state = model(token, state)
    assert taken == ["decode_step"] * 8 * fast

    path = model.train().blocks[0].attention.path("cuda", model.encoding.has_terms)
    assert (path == "flex") == fast


def test_a_bias_alone_needs_no_row_a_distance_even_beside_cached_keys():
    model = transformer("alibi")
    state = model.evaluation_state(model.initial_state(3, SPAN))
    _, state = model(text(5, batch=3), state)
    tables = model.encoding.cached_tables(state.kept, 5, None, torch.zeros(1).double(), 3)
    assert [(table.rows_HKS, table.bias_HS.shape) for table in tables] == [(None, (2, 6))] * 2
