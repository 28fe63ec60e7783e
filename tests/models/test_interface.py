"""A view refuses what cannot be computed."""

import pytest

from txlbench.models.interface import View


def test_same_length_without_memory_is_refused():
    with pytest.raises(ValueError, match="same_length needs mem_len of at least 1"):
        View(mem_len=0, same_length=True)


def test_same_length_with_a_memory_of_one_sees_only_itself():
    assert View(mem_len=1, same_length=True).mem_len == 1
