"""Where a walk ends, and why."""

import numpy as np
import pytest

from txlbench.evaluation.recl.walk import Walk, walk

CONTEXTS = (100, 200, 300)


@pytest.mark.parametrize(
    ("counts", "longest", "expected"),
    [
        ([False, True], None, Walk(100, False, None)),
        ([True, False], None, Walk(200, False, None)),
        ([True, True], None, Walk(300, True, None)),
        ([True, False], 128, Walk(128, False, "longest")),
        ([True, False], 200, Walk(200, False, "longest")),
        ([True, False], 201, Walk(200, False, None)),
        ([False, False], 64, Walk(64, False, "longest")),
        ([True, True], 128, Walk(128, True, "longest")),
        ([True, True], 999, Walk(300, True, None)),
    ],
)
def test_the_walk_stops_at_the_first_step_that_does_not_count(counts, longest, expected):
    assert walk(np.array(counts), CONTEXTS, longest) == expected
