"""The self-test of a CUDA device's attention: it passes what is right, and finds what is not.

On the CPU PyTorch computes FlexAttention unfused; its refusal of gradients there is lifted.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.attention import flex_attention as flex

from tests.benchmarks import cuda as rehearsal
from tests.training.trial import config, settings_of, state_of
from txlbench import seeding
from txlbench.config.base import AttentionSpan
from txlbench.config.model import ModelConfig
from txlbench.models import attention
from txlbench.models.kernels import cuda
from txlbench.training import self_test
from txlbench.training.self_test import KernelShape, compare_attention, settle_attention
from txlbench.world import World

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")

SIZES = {"n_layer": 3, "d_model": 48, "n_head": 2, "d_head": 16, "d_inner": 64, "dropout": 0.1}
SPAN = AttentionSpan(mem_len=7)
BF16 = pytest.param("bf16", marks=pytest.mark.full)


@pytest.fixture(autouse=True)
def _gradients_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)


def compared(precision: str = "fp32", span: AttentionSpan = SPAN, **settings: Any) -> Any:
    model = ModelConfig(**{**SIZES, **settings})
    shape = KernelShape(3, 9, span, precision, torch.device("cpu"), "cuda")
    return compare_attention(model, shape)


@pytest.mark.parametrize("precision", ["fp32", BF16])
@pytest.mark.parametrize(
    ("settings", "span"),
    [
        ({"dropatt": 0.2, "cutoffs": (20, 40), "div_val": 2}, SPAN),
        ({"encoding": "shaw", "max_distance": 5, "shaw_bias": True}, SPAN),
        ({"encoding": "fox", "pre_lnorm": True}, AttentionSpan(mem_len=7, same_length=True)),
        ({"encoding": "t5", "max_distance": 9}, AttentionSpan(mem_len=0)),
    ],
)
def test_the_right_kernel_passes(precision: str, settings: dict[str, Any], span: AttentionSpan):
    before = seeding.capture()
    found = compared(precision, span, **settings)
    assert (found.path, found.reason) == ("flex", None)
    assert 0 < found.difference < found.allowed < (0.01 if precision == "fp32" else 1)
    assert torch.equal(seeding.capture()["torch"], before["torch"])
    assert seeding.capture()["bits"] == before["bits"]


def off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    by_distance = cuda._by_distance
    monkeypatch.setattr(cuda, "_by_distance", lambda q, terms: by_distance(q, terms).roll(1, -1))


def without_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    added = cuda._added
    monkeypatch.setattr(
        cuda, "_added", lambda by, decay, mask: added(by, decay, replace(mask, valid_len_B=None))
    )


def another_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    without = cuda._without_dropped

    def shifted(score: Any, dropout: Any) -> Any:
        return without(score, replace(dropout, one_BH=dropout.one_BH + 1))

    monkeypatch.setattr(cuda, "_without_dropped", shifted)


def no_gradient_of_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    by_distance = cuda._by_distance
    monkeypatch.setattr(cuda, "_by_distance", lambda q, terms: by_distance(q, terms).detach())


def kernel(change: Any) -> Any:
    def inject(monkeypatch: pytest.MonkeyPatch) -> None:
        flexible = cuda.flexible_attention
        monkeypatch.setattr(
            attention, "flexible_attention", lambda *given, **kw: change(flexible(*given, **kw))
        )

    return inject


def fails(_: torch.Tensor) -> torch.Tensor:
    raise RuntimeError("no kernel image\nfor this device")


FAULTS = {
    "another distance": off_by_one,
    "states before a reset": without_reset,
    "another mask of dropout": another_mask,
    "no gradient of positions": no_gradient_of_positions,
    "a third too much": kernel(lambda mixed: mixed * 1.3),
    "no number in one place": kernel(lambda mixed: mixed.index_fill(1, torch.tensor(3), torch.nan)),
    "an exception": kernel(fails),
}


WITHOUT_NUMBER = ("an exception", "no number in one place", "no gradient of positions")


@pytest.mark.parametrize("precision", ["fp32", BF16])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, precision: str, monkeypatch: pytest.MonkeyPatch):
    FAULTS[fault](monkeypatch)
    found = compared(precision, dropatt=0.2)
    assert found.path == "plain"
    if fault == "an exception":
        assert found.reason == "RuntimeError: no kernel image for this device"
    else:
        assert ("is no finite number" if fault in WITHOUT_NUMBER else "is off by") in found.reason
    assert (found.difference is None) == (fault in WITHOUT_NUMBER)


def test_a_failing_kernel_is_not_used_in_training(monkeypatch: pytest.MonkeyPatch):
    run = config(model={"d_head": 16, "dropatt": 0.1})
    settings = settings_of(run)
    state = state_of(run)
    found = settle_attention(state.model, run.model, settings, acts_on="cuda")
    assert found.path == "flex"
    assert all(block.attention.fuses for block in state.model.blocks)
    kernel(fails)(monkeypatch)
    found = settle_attention(state.model, run.model, settings, acts_on="cuda")
    assert found.path == "plain"
    assert not any(block.attention.fuses for block in state.model.blocks)
    tokens = torch.randint(11, (4, 6))
    state.model(tokens, state.memories[0])  # which would raise


def test_processes_take_the_same_path(monkeypatch: pytest.MonkeyPatch):
    run = config(model={"d_head": 16})
    monkeypatch.setattr(World, "agree", lambda *_: (True,))
    settings = replace(settings_of(run), world=World(0, 2))
    model = state_of(run).model
    found = settle_attention(model, run.model, settings, acts_on="cuda")
    assert found.path == "plain"
    assert "another process" in found.reason
    assert not model.blocks[0].attention.fuses


def test_nothing_is_tested_where_nothing_is_fused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(self_test, "compare_attention", lambda *_: pytest.fail("tested"))

    def path(acts_on: str | None = None, compiled: bool = False, **model: Any) -> Any:
        run = config(model=model, compile=compiled)
        settled = settle_attention(state_of(run).model, run.model, settings_of(run), acts_on)
        return settled and settled.path

    assert path() == "tiles"
    assert path(compiled=True) == "plain"
    assert path("cuda", d_head=8) == "plain"
    assert path("cuda", kind="lstm") is None


def test_the_plain_paths_hold_few_scores():
    shape = KernelShape(64, 512, AttentionSpan(mem_len=1024), "bf16", torch.device("cpu"))
    assert shape.plain_rows(heads=8) == 2
    assert replace(shape, tgt_len=4000).plain_rows(heads=8) == 1
    assert replace(shape, tgt_len=1).plain_rows(heads=8) == 64


@pytest.mark.full
def test_the_benchmark_of_devices_can_be_rehearsed(capsys: pytest.CaptureFixture[str]):
    """So that it does not end with a slip on the one device that is lent."""
    rehearsal.main(["--device", "cpu", "--minutes", "1", "--rounds", "2"])
    said = capsys.readouterr().out
    headings = ("fused attention", "attention alone", "training, toy", "waits of a step")
    assert all(heading in said for heading in headings)
    assert "The minutes are over" not in said
