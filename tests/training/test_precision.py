"""Number formats: weights, gradients and optimiser stay in float32."""

import pytest
import torch

from tests.training.trial import CPU, Recorder, config, trained, weights
from txlbench.training import precision
from txlbench.training.precision import autocast, products, resolve_precision


@pytest.mark.parametrize("asked", ["fp32", "bf16"])
def test_what_is_asked_for_is_used(asked):
    assert resolve_precision(asked, CPU) == asked


@pytest.mark.parametrize(
    ("flags", "expected"), [("fpu avx512_bf16", "fp32"), ("fpu amx_bf16 amx_tile", "bf16")]
)
def test_auto_is_bf16_on_processors_with_tiles_only(monkeypatch, tmp_path, flags, expected):
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor : 0\nflags : {flags}\n\nprocessor : 1\nflags : {flags}\n")
    monkeypatch.setattr(precision, "Path", lambda name: file)
    assert resolve_precision("auto", CPU) == expected


def test_auto_is_fp32_where_the_system_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(precision, "Path", lambda name: tmp_path / "missing")
    assert resolve_precision("auto", CPU) == "fp32"


@pytest.mark.parametrize(("name", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
def test_products_are_computed_in_the_precision(name, dtype):
    with autocast(name, CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


def test_bf16_keeps_weights_gradients_and_moments_in_float32():
    run = config({"dropout": 0.1}, precision="bf16", max_step=2)
    state = trained(run)
    moments = [
        tensor
        for entry in state.optimiser.state_dict()["state"].values()
        for tensor in entry.values()
    ]
    assert {tensor.dtype for tensor in [*weights(state).values(), *moments]} == {torch.float32}


def test_bf16_changes_the_losses_a_little():
    lines = {}
    for name in ("fp32", "bf16"):
        recorder = Recorder()
        trained(config(precision=name, log_interval=1), recorder)
        lines[name] = [line["train_loss"] for line in recorder.training]
    assert lines["fp32"] != lines["bf16"]
    assert lines["fp32"] == pytest.approx(lines["bf16"], rel=0.02)


@pytest.mark.parametrize(("capability", "expected"), [((8, 0), "tf32"), ((7, 5), "fp32")])
def test_tf32_is_fp32_where_the_device_has_no_units_for_it(monkeypatch, capability, expected):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert resolve_precision("tf32", torch.device("cuda:0")) == expected
    assert resolve_precision("tf32", CPU) == "fp32"


@pytest.mark.parametrize("name", ["fp32", "bf16", "tf32"])
def test_products_of_float32_are_shortened_only_where_it_was_asked_for(name):
    before = torch.get_float32_matmul_precision()
    with products(name):
        assert torch.get_float32_matmul_precision() == ("high" if name == "tf32" else before)
    assert torch.get_float32_matmul_precision() == before
