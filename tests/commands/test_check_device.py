"""`check --device cuda` tests the kernel in the shapes of an experiment; here on the CPU."""

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch.nn.attention import flex_attention as flex

from txlbench.cli import experiments
from txlbench.cli.main import cli
from txlbench.commands import check_device
from txlbench.commands.check_device import check_kernels
from txlbench.config.benchmarks import Size
from txlbench.config.catalogue import ENCODINGS
from txlbench.config.model import ModelConfig
from txlbench.errors import UserError
from txlbench.records.schema import AttentionFacts

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

SPEC = """
name: kernels
corpus: enwiki-sample
model: {n_layer: 3, d_model: 32, n_head: 2, d_inner: 32, dropatt: 0.1}
train: {tgt_len: 6, mem_len: 6, batch_size: 4, batch_chunk: 2, precision: fp32}
seeds: [1]
rows:
  - {label: one, set: {model.dropout: 0.2}}
  - {label: other, set: {model.n_layer: 2}}
  - {label: shorter, set: {train.mem_len: 3}}
  - {label: recurrent, set: {model.kind: lstm}}
"""
CPU = torch.device("cpu")
ON_CUDA = ("--device", "cuda")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.yaml"
    path.write_text(SPEC)
    return path


def test_each_shape_of_an_experiment_is_tested_once(spec: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    found = list(check_kernels([spec], CPU, "cuda"))
    assert [each.labels for each in found] == [("one", "other"), ("shorter",)]
    assert [each.attention.path for each in found] == ["flex", "flex"]


def test_without_an_experiment_every_encoding_is(monkeypatch: pytest.MonkeyPatch):
    shapes: list[Any] = []

    def compare(model: Any, shape: Any) -> AttentionFacts:
        shapes.append((model.encoding, model.dropatt, shape.precision))
        return AttentionFacts(path="flex")

    monkeypatch.setattr(check_device, "compare_attention", compare)
    monkeypatch.setitem(check_device.SIZES, "small", Size(ModelConfig(d_model=32), 6, 4))
    assert len(list(check_kernels([], CPU, "cuda"))) == len(shapes)
    assert {name for name, *_ in shapes} == set(ENCODINGS)
    assert ("xl", check_device.DROPPED, "fp32") in shapes


def test_what_the_verb_says(spec: Path, monkeypatch: pytest.MonkeyPatch):
    facts = [
        AttentionFacts(path="flex", difference=1e-6, allowed=1e-3, seconds=2.0),
        AttentionFacts(path="plain", reason="the loss is off by 50.0%", seconds=3.0),
    ]
    monkeypatch.setattr(check_device, "compare_attention", lambda *_: facts.pop(0))
    monkeypatch.setattr("txlbench.machine.own_device", lambda _: torch.device("cuda:0"))
    monkeypatch.setattr(check_device, "resolve_precision", lambda *_: "bf16")
    done = CliRunner().invoke(cli, ["check", str(spec), *ON_CUDA], standalone_mode=False)
    assert done.return_value == 1
    assert "1e-06" in done.output
    assert "shorter, bf16: the loss is off by 50.0%" in done.stderr
    refused = CliRunner().invoke(cli, ["check", "slope.py", *ON_CUDA], standalone_mode=False)
    assert isinstance(refused.exception, UserError)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the machine has a device")
def test_a_device_that_is_not_there_is_refused(spec: Path):
    done = CliRunner().invoke(cli, ["check", str(spec), *ON_CUDA], standalone_mode=False)
    assert isinstance(done.exception, UserError)


def test_the_table_has_a_line_each():
    facts = AttentionFacts(path="plain", reason="x", seconds=1.0)
    table = experiments._kernel_table([check_device.CheckedKernel(("a", "b"), "fp32", facts)])
    assert [column.cells for column in table.columns][:3] == [
        ("a and 1 more",),
        ("fp32",),
        ("plain",),
    ]
