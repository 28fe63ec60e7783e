"""The context of each scored token is what a model of one layer really sees."""

import numpy as np
import pytest
import torch

from tests.models.subjects import VOCABULARY, transformer
from txlbench.config.measurements import Measurement
from txlbench.evaluation.scoring import score
from txlbench.evaluation.seen_context import seen_context

MEASUREMENTS = {
    "streams": {"regime": "streaming", "tgt_len": 5, "stride": 5, "mem_len": 7, "batch_size": 3},
    "a sample": {
        **{"regime": "streaming", "tgt_len": 4, "stride": 4, "mem_len": 6},
        **{"batch_size": 2, "tokens": 20},
    },
    "no memory": {"regime": "streaming", "tgt_len": 5, "stride": 5, "batch_size": 2},
    "windows": {"regime": "windows", "tgt_len": 6, "stride": 2, "batch_size": 3},
}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_token_beyond_the_context_changes_nothing_and_the_last_inside_does(name):
    model = transformer("xl", n_layer=1)
    ids = np.random.default_rng(3).integers(VOCABULARY, size=61).astype(np.uint8)
    measurement = Measurement(split="test", **MEASUREMENTS[name])

    def losses(changed=None):
        other = ids.copy()
        if changed is not None:
            other[changed] = (other[changed] + 1) % VOCABULARY
        found = score(model, other, measurement, 1, torch.device("cpu"), keep_losses=True)
        return dict(zip(found.positions.tolist(), found.losses.tolist(), strict=True))

    plain = losses()
    positions, contexts = seen_context(len(ids) - 1, measurement, 1)
    assert positions.tolist() == sorted(plain)
    for position, context in zip(positions.tolist()[::3], contexts.tolist()[::3], strict=True):
        assert losses(position - context)[position] != plain[position]
        if context < position:
            assert losses(position - context - 1)[position] == plain[position]
