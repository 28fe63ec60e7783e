"""Times as people read them; the rest is tested through the verbs that print it."""

import pytest

from txlbench.runs.status import _ago, duration


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 seconds ago"),
        (119, "119 seconds ago"),
        (120, "2 minutes ago"),
        (7199, "119 minutes ago"),
        (7200, "2 hours ago"),
        (3 * 86400, "3 days ago"),
    ],
)
def test_ages(seconds, words):
    assert _ago(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (5, "0:05"),
        (65, "1:05"),
        (7500, "2:05:00"),
        (47 * 3600, "47:00:00"),
        (50 * 3600, "2 days"),
        (100 * 86400, "3 months"),
        (3 * 366 * 86400, "3 years"),
    ],
)
def test_durations(seconds, words):
    assert duration(seconds) == words
