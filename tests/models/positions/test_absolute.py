"""Al-Rfou's encoding knows the positions it has learned, and no more."""

import pytest

from tests.models.subjects import text, transformer
from txlbench.errors import UserError
from txlbench.models.interface import View


def test_a_segment_longer_than_the_table_is_refused():
    model = transformer("al-rfou", max_distance=5)
    state = model.initial_state(1, View(mem_len=3))
    model(text(6), state)
    with pytest.raises(UserError, match=r"learned 6 positions, but the segment has 7 .* at most 6"):
        model(text(7), state)
