"""Nats are shown as bits per character or as perplexity."""

import math

import pytest

from txlbench.config.base import displayed, shown


def test_nats_in_each_unit():
    assert displayed(math.log(2), "bpc") == pytest.approx(1)
    assert displayed(math.log(27.02), "ppl") == pytest.approx(27.02)


def test_a_diverged_loss_does_not_overflow():
    assert math.isfinite(displayed(1e6, "ppl"))


def test_as_people_read_it():
    assert shown(1.23456, "bpc") == "1.235"
    assert shown(1234.567, "ppl") == "1,234.57"
    assert shown(0.5, "bpc", sign=True) == "+0.500"
    assert shown(-0.5, "ppl", sign=True) == "-0.50"
