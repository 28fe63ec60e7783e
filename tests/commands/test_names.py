"""Names are the shortest suffix that no other has."""

import pytest

from txlbench.commands.names import short_titles


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["results/quick/runs/a", "results/quick/runs/b"], ["a", "b"]),
        (["x/a", "y/a", "b"], ["x/a", "y/a", "b"]),
        (["a", "x/a"], ["a", "x/a"]),
        (["q/x/a", "q/y/a", "q/y/b"], ["x/a", "y/a", "b"]),
        (["alone/at/home/"], ["home"]),
    ],
)
def test_titles_are_the_shortest_suffixes(names, expected):
    assert short_titles(names) == expected
