"""ALiBi's slopes and biases against Bloom's of transformers."""

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from tests.models.subjects import transformer
from txlbench.models.mask import relative_shift
from txlbench.models.positions.alibi import slopes_of


@pytest.mark.parametrize("heads", [1, 2, 3, 6, 8, 12, 16])
def test_biases_are_blooms_up_to_what_softmax_does_not_see(heads: int):
    """Bloom adds slope times j instead of subtracting slope times i - j."""
    keys = 11
    theirs = build_alibi_tensor(torch.ones(1, keys), heads, torch.float32).double()  # [H, 1, S]
    model = transformer("alibi", n_head=heads)
    table = model.encoding.prepare(keys, None, torch.zeros(0).double())
    mine = relative_shift(table.bias_HS[:, None].expand(-1, keys, -1))
    unseen = torch.ones(keys, keys).triu(1).bool()
    one, other = (
        part.expand(heads, keys, keys).masked_fill(unseen, -torch.inf).softmax(-1)
        for part in (mine, theirs)
    )
    assert torch.allclose(one, other, rtol=0, atol=1e-6)
    assert slopes_of(heads)[0] == pytest.approx(-float(mine[0, 1, 0]))
