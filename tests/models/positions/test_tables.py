"""Sinusoids tell every distance from every other, whatever the precision of training.

A single query's scores from sums of angles are those of the projected sinusoids.
"""

import math

import pytest
import torch

from tests.models.subjects import text, transformer
from txlbench.config.base import AttentionSpan
from txlbench.evaluation.invariants import stream_losses
from txlbench.models.positions.tables import STEP, AngleSums, cached_sinusoid, sinusoid
from txlbench.models.positions.xl import FAR, XLEncoding

POSITIONS = torch.arange(4001)


def distinct(rows: torch.Tensor) -> int:
    return len(rows.unique(dim=0))


@pytest.mark.parametrize("d_model", [12, 128, 410])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_rows_of_0_to_4000_are_distinct(d_model: int, dtype: torch.dtype):
    rows = sinusoid(POSITIONS, d_model, dtype)
    assert rows.dtype == torch.promote_types(dtype, torch.float32)
    assert distinct(rows) == 4001


@pytest.mark.parametrize("autocast", [False, True])
def test_the_encoding_keeps_them_apart_under_autocast_too(autocast: bool):
    model = transformer("xl", d_model=32).float()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        shared = model.encoding.prepare(4001, None, model.embedding.tables[0])
    assert shared.dtype == torch.float32
    exact = sinusoid(POSITIONS.flip(0), 32, torch.float64)
    assert torch.equal(shared[1:], exact.float())
    assert not shared[0].any()
    assert distinct(shared[1:].bfloat16()) == 4001  # what a bf16 product is given


@pytest.mark.parametrize("d_model", [1, 6, 7])
def test_halves_of_sines_and_cosines(d_model: int):
    row = sinusoid(torch.tensor([37]), d_model, torch.float64)[0]
    angles = [37 * 10000 ** (-k / d_model) for k in range(0, d_model, 2)]
    expected = [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
    assert row.tolist() == pytest.approx(expected[:d_model], abs=1e-12)


def test_rows_run_from_first_to_last_either_way_and_are_kept():
    def rows(first: int, last: int, clamp_len: int | None = None) -> torch.Tensor:
        return cached_sinusoid(first, last, clamp_len, 8, torch.float32, "cpu")

    assert torch.equal(rows(0, 4), rows(4, 0).flip(0))
    assert torch.equal(rows(3, 3), sinusoid(torch.tensor([3]), 8, torch.float32))
    assert torch.equal(rows(4, 0, 2)[:3], rows(2, 2).expand(3, -1))
    assert rows(4, 0) is rows(4, 0)


KEYS = [1, 2, STEP - 1, STEP, STEP + 1, 5000]


def both(dtype: torch.dtype, keys: int, d_model: int = 12) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of one query in the first layer, by the tables and by the sums."""
    encoding = transformer("xl", d_model=d_model).encoding.to(dtype)
    assert isinstance(encoding, XLEncoding)
    like = torch.zeros(1, dtype=dtype)
    query_HBTK = torch.randn(2, 1, 1, 5, generator=torch.Generator().manual_seed(1)).to(dtype)
    tables = encoding.cached_tables({}, keys, None, like, queries=2)
    sums = next(encoding.angle_sums(keys, like))
    return tables[0].position(query_HBTK), sums.position(query_HBTK)


@pytest.mark.parametrize("d_model", [12, 13])
@pytest.mark.parametrize("keys", KEYS)
def test_they_equal_the_tables(keys: int, d_model: int):
    tables, sums = both(torch.float64, keys, d_model)
    assert sums.shape == (2, 1, 1, keys)
    assert torch.allclose(tables, sums, rtol=0, atol=1e-12)


def test_in_float32_they_are_as_near_to_float64_as_the_tables():
    exact, _ = both(torch.float64, 5000)
    tables, sums = both(torch.float32, 5000)
    scale = exact.abs().max()
    assert (tables - exact).abs().max() / scale < 1e-6
    assert (sums - exact).abs().max() / scale < 1e-6


@pytest.mark.parametrize("keys", KEYS)
def test_fewer_keys_are_the_shortest_distances(keys: int):
    encoding = transformer("xl").encoding
    like, query = torch.zeros(1, dtype=torch.float64), torch.ones(2, 1, 1, 5).double()
    sums = next(encoding.angle_sums(5000, like))
    expected = sums.position(query)[..., -keys:]
    assert torch.allclose(sums.newest(keys).position(query), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "span", [AttentionSpan(mem_len=FAR + 20), AttentionSpan(mem_len=FAR + 20, same_length=True)]
)
def test_tokens_one_by_one_beside_a_long_memory_have_the_losses_of_the_plain_pass(
    span: AttentionSpan,
):
    model, tokens = transformer("xl"), text(FAR + 60)
    cuts = [FAR - 10, *[1] * 60, 5, 1]
    plain, _ = stream_losses(model, tokens, cuts, span, model.initial_state(1, span))
    state = model.evaluation_state(model.initial_state(1, span))
    fast, state = stream_losses(model, tokens, cuts, span, state)
    assert AngleSums in state.kept
    assert torch.allclose(plain, fast, rtol=0, atol=1e-10)


def test_clamped_distances_and_bfloat16_keep_to_the_tables():
    encoding, like = transformer("xl").encoding.float(), torch.zeros(1)
    assert not any(
        isinstance(table, AngleSums)
        for table in encoding.cached_tables({}, FAR, 9, like, queries=1)
    )
    with torch.autocast("cpu", torch.bfloat16):
        found = encoding.cached_tables({}, FAR, None, like, queries=1)
    assert not any(isinstance(table, AngleSums) for table in found)
    assert all(
        isinstance(table, AngleSums)
        for table in encoding.cached_tables({}, FAR, None, like, queries=1)
    )
