"""Sinusoids tell every distance from every other, whatever the precision of training."""

import math

import pytest
import torch

from tests.models.subjects import transformer
from txlbench.models.positions.sinusoid import cached_sinusoid, sinusoid

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
