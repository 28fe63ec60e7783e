"""The accelerators of `--accelerator`: what precision comes to on each, and names that are not."""

import pytest

from txlbench.config.accelerators import ACCELERATORS, accelerators_named
from txlbench.errors import UserError


def test_a_card_without_units_for_a_format_computes_in_float32():
    v100, a100 = accelerators_named("v100, A100")
    assert v100.rate("auto") == v100.rate("bf16") == v100.rate("tf32") == ("fp32", 15.7e12)
    assert a100.rate("auto") == ("bf16", 312e12)
    assert a100.rate("tf32") == ("tf32", 156e12)
    assert a100.rate("fp32") == ("fp32", 19.5e12)


def test_faster_formats_are_faster_and_every_entry_names_its_source():
    for each in ACCELERATORS.values():
        rates = [
            each.teraflops[name] for name in ("fp32", "tf32", "bf16") if name in each.teraflops
        ]
        assert rates == sorted(rates)
        assert "NVIDIA" in each.source
        assert 10 < each.memory_gb < 200


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(UserError, match=r"a1000: unknown.*a100"):
        accelerators_named("h100,a1000")
