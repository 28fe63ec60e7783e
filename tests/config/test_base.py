"""A span of attention refuses what cannot be computed; nats are shown in the corpus's unit."""

import math

import pytest

from txlbench.config.base import AttentionSpan, displayed, is_exploded, shown


def test_nats_in_each_unit():
    assert displayed(math.log(2), "bpc") == pytest.approx(1)
    assert displayed(math.log(27.02), "ppl") == pytest.approx(27.02)


def test_a_diverged_loss_does_not_overflow():
    assert displayed(1e6, "ppl") == math.inf
    assert displayed(1e6, "bpc") == 1e6 / math.log(2)
    assert math.isfinite(displayed(700.0, "ppl"))


def test_exploded_numbers_are_shown_short():
    assert shown(4.7e17, "bpc") == "4.7e+17"
    assert shown(math.inf, "ppl") == "inf"


def test_only_what_is_far_above_a_uniform_guess_has_exploded():
    assert not is_exploded(1.2 * math.log(256), 256)
    assert is_exploded(3 * math.log(256), 256)
    assert is_exploded(math.inf, 256)
    assert not is_exploded(0.0, 1)


def test_as_people_read_it():
    assert shown(1.23456, "bpc") == "1.235"
    assert shown(1234.567, "ppl") == "1,234.57"
    assert shown(0.5, "bpc", sign=True) == "+0.500"
    assert shown(-0.5, "ppl", sign=True) == "-0.50"


def test_same_length_without_memory_is_refused():
    with pytest.raises(ValueError, match="same_length needs mem_len of at least 1"):
        AttentionSpan(mem_len=0, same_length=True)


def test_same_length_with_a_memory_of_one_sees_only_itself():
    assert AttentionSpan(mem_len=1, same_length=True).mem_len == 1
