"""Batches that are read ahead are the batches of their steps, in whatever order these are asked.

Number formats: weights, gradients and optimiser stay in float32.
"""

import time
from dataclasses import dataclass

import pytest
import torch

from tests.training.trial import CPU, Recorder, config, streams, trained, weights
from txlbench.config.model import ModelConfig
from txlbench.models.factory import build_model
from txlbench.training import runtime
from txlbench.training.runtime import Staged, autocast, products, resolve_precision, staged


@dataclass
class Slow:
    """A source that takes its time and notes what it read."""

    source: object

    def __post_init__(self):
        self.read = []

    def __getitem__(self, step):
        self.read.append(step)
        time.sleep(0.01)
        return self.source[step]


def test_each_step_gets_its_batch_and_each_is_read_once():
    source = Slow(streams(config()))
    ahead = Staged(source, CPU)
    for step in (0, 1, 2, 3, 20, 21, 5):
        batch, expected = ahead[step], source.source[step]
        assert torch.equal(batch.tokens, expected.tokens)
        assert torch.equal(batch.targets, expected.targets)
        assert (batch.scored, batch.first) == (expected.scored, expected.first)
    ahead.close()
    # What was asked for and what came next; the very last may not have been begun.
    assert {*source.read} - {6} == {0, 1, 2, 3, 4, 5, 20, 21, 22}
    assert [source.read.count(step) for step in (0, 1, 2, 3)] == [1] * 4


def test_the_next_batch_is_read_while_the_present_one_is_used():
    source = Slow(streams(config()))
    ahead = Staged(source, CPU)
    _ = ahead[0]
    time.sleep(0.1)
    begin = time.perf_counter()
    _ = ahead[1]
    assert time.perf_counter() - begin < 0.008
    ahead.close()


def test_a_fault_shows_at_the_step_that_it_concerns():
    class Broken:
        def __getitem__(self, step):
            if step == 1:
                raise OSError("the disk is gone")
            return streams(config())[step]

    ahead = Staged(Broken(), CPU)
    assert ahead[0].first
    with pytest.raises(OSError, match="the disk is gone"):
        _ = ahead[1]
    ahead.close()


def test_a_cpu_reads_when_it_needs():
    source = streams(config())
    with staged(source, CPU) as batches:
        assert batches is source


@pytest.mark.parametrize("asked", ["fp32", "bf16"])
def test_what_is_asked_for_is_used(asked):
    assert resolve_precision(asked, CPU) == asked


@pytest.mark.parametrize(
    ("flags", "expected"), [("fpu avx512_bf16", "fp32"), ("fpu amx_bf16 amx_tile", "bf16")]
)
def test_auto_is_bf16_on_processors_with_tiles_only(monkeypatch, tmp_path, flags, expected):
    file = tmp_path / "cpuinfo"
    file.write_text(f"processor : 0\nflags : {flags}\n\nprocessor : 1\nflags : {flags}\n")
    monkeypatch.setattr(runtime, "Path", lambda name: file)
    assert resolve_precision("auto", CPU) == expected


def test_auto_is_fp32_where_the_system_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(runtime, "Path", lambda name: tmp_path / "missing")
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


def test_an_lstm_rounds_its_products_to_tf32_only_where_that_is_asked_for():
    """cuDNN's switch, which PyTorch leaves on; what it does needs a CUDA device."""
    torch.backends.cudnn.allow_tf32 = True
    build_model(ModelConfig(kind="lstm"), 11)
    assert not torch.backends.cudnn.allow_tf32
    for precision in ("fp32", "tf32", "bf16"):
        with products(precision):
            assert torch.backends.cudnn.allow_tf32 == (precision == "tf32")
        assert not torch.backends.cudnn.allow_tf32


def test_ids_that_a_model_reads_on_the_host_stay_there():
    with staged(streams(config()), torch.device("meta"), on_host=True) as batches:
        assert batches[0].tokens.device.type == "cpu"
    with staged(streams(config()), torch.device("meta")) as batches:
        assert batches[0].tokens.device.type == "meta"
