"""T5's buckets against transformers' own; where KERPLE's parameters start and stop."""

import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

from tests.models.subjects import transformer
from txlbench import seeding
from txlbench.config.model import ModelConfig
from txlbench.models.factory import build_model
from txlbench.models.positions.biases import LEAST, buckets_of


@pytest.mark.parametrize("farthest", [32, 128, 500])
def test_buckets_are_t5s(farthest: int):
    distances = torch.arange(2000)
    theirs = T5Attention._relative_position_bucket(
        -distances, bidirectional=False, num_buckets=32, max_distance=farthest
    )
    assert torch.equal(buckets_of(distances, farthest), theirs)
    assert buckets_of(distances, farthest)[[15, 16, 1999]].tolist() == [15, 16, 31]


def test_kerple_starts_as_in_its_code():
    seeding.seed_everything(1)
    sizes = {"n_layer": 8, "n_head": 64, "d_model": 64, "encoding": "kerple"}
    encoding = build_model(ModelConfig.model_validate(sizes), 5).encoding
    for values, end in ((encoding.p, 2.0), (encoding.a, 1.0)):
        assert 0 <= values.min() < 0.05 * end
        assert 0.95 * end < values.max() < end
        assert float(values.mean()) == pytest.approx(end / 2, rel=0.1)


def test_kerple_counts_less_as_the_least_and_still_learns():
    encoding = transformer("kerple").encoding
    with torch.no_grad():
        encoding.p.fill_(-3.0)
    table = encoding.distance_table(0, encoding.prepare(5, None, torch.zeros(0).double()))
    a = encoding.a[0].clamp(min=LEAST)[:, None]
    expected = -LEAST * torch.log1p(a * torch.arange(4, -1, -1))
    assert torch.allclose(table.bias_HS[:, 1:], expected)
    table.bias_HS.sum().backward()
    assert (encoding.p.grad[0] != 0).all()
