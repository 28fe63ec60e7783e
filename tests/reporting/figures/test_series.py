"""Names of lines in figures."""

import pytest

from txlbench.reporting.figures.series import name_with_state


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("encoding=xl recurrence=true loss=half", "xl recurrence half"),
        ("encoding=al-rfou recurrence=false mem_len=16", "al-rfou no recurrence mem_len=16"),
        ("XL without recurrence", "XL without recurrence"),
        ("a = b", "a = b"),
    ],
)
def test_settings_of_a_grid_are_told_by_their_values(label: str, name: str) -> None:
    assert name_with_state(label, []) == name
