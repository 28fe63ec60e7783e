"""Al-Rfou's encoding knows the positions it has learned, and no more."""

import pytest

from tests.models.subjects import text, transformer
from txlbench.config.base import AttentionSpan
from txlbench.errors import UserError


def test_a_segment_longer_than_the_table_is_refused():
    model = transformer("al-rfou", max_distance=5)
    state = model.initial_state(1, AttentionSpan(mem_len=3))
    model(text(6), state)
    with pytest.raises(UserError, match=r"learned 6 positions, but the segment has 7 .* at most 6"):
        model(text(7), state)
