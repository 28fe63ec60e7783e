"""FlexAttention with positions added inside equals the plain path: values and gradients.

It is for CUDA devices. On a CPU PyTorch computes it unfused, by the same rules for scores and
masks, and refuses gradients though it has them: that refusal is lifted here.
"""

from functools import partial
from typing import Any

import pytest
import torch
from torch.nn.attention import flex_attention as flex

from tests.models.kernels.test_cpu import MODELS, SPANS, trained
from tests.models.subjects import transformer
from txlbench import seeding
from txlbench.config.base import AttentionSpan
from txlbench.models import attention
from txlbench.models.attention import Attention
from txlbench.models.kernels.cuda import PositionDropout, flexible_attention

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets attention act as on a CUDA device, with heads of any size; counts how often it fuses."""
    calls: list[int] = []

    def counted(*given: Any, **options: Any) -> Any:
        calls.append(1)
        return flexible_attention(*given, **options)

    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    monkeypatch.setattr(attention, "flexible_attention", counted)
    monkeypatch.setattr(attention, "SMALLEST_HEAD", 1)
    initialise = Attention.__init__

    def acting(self: Any, config: Any) -> None:
        initialise(self, config)
        self.acts_on = "cuda"

    monkeypatch.setattr(Attention, "__init__", acting)
    return calls


QUICK = [
    ("xl", "memory"),
    ("xl", "half loss"),
    ("xl, norm first", "clamped"),
    ("shaw, biases", "same length, short"),
    ("absolute", "no memory"),
    ("alibi", "memory"),
    ("rotary", "half loss"),
    ("rope", "memory"),
    ("fox", "memory"),
    ("t5", "same length"),
]


@pytest.mark.parametrize(
    ("model", "span"),
    [
        pytest.param(model, span, marks=() if (model, span) in QUICK else pytest.mark.full)
        for model in MODELS
        for span in SPANS
    ],
)
def test_it_equals_the_plain_path(model: str, span: str, used: list[int]):
    built = transformer(**MODELS[model], dropout=0.0).train()
    for forget in (False, True):
        compare(built, SPANS[span], forget, atol=1e-10)
    assert len(used) == 2 * 3 * 2


def compare(model: Any, span: AttentionSpan, forget: bool, atol: float) -> None:
    got, expected = (trained(model, span, forget, watch) for watch in (False, True))
    for one, other in zip(got, expected, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, other, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("model", "span", "rate"),
    [
        ("xl", "memory", 0.3),
        pytest.param("fox", "same length", 0.3, marks=pytest.mark.full),
        # First queries, which see few keys, lose all of them.
        pytest.param("xl", "no memory", 0.9, marks=pytest.mark.full),
    ],
)
def test_attention_dropout_is_that_of_the_plain_path(
    model: str, span: str, rate: float, used: list[int]
):
    built = transformer(**MODELS[model], dropout=0.0, dropatt=rate).train()
    compare(built, SPANS[span], forget=True, atol=1e-9)
    assert len(used) == 3 * 2
    seeding.seed_everything(9)
    losses = [trained(built, SPANS[span], False, False)[0] for _ in range(2)]
    assert losses[0] == losses[1]  # `trained` seeds
    built.eval()
    assert trained(built, SPANS[span], False, False)[0] != losses[0]


def hashed(place: int, one: int, other: int) -> int:
    """The same hash in Python's whole numbers."""
    mixed = place ^ one
    mixed = ((mixed ^ (mixed >> 16)) * 0x7FEB352D) % 2**32
    mixed ^= other
    mixed = ((mixed ^ (mixed >> 15)) * 0x846CA68B) % 2**32
    return mixed ^ (mixed >> 16)


def test_the_mask_is_a_function_of_position_and_seed():
    torch.manual_seed(3)
    dropout = PositionDropout.draw(3, 2, 7, 0.25, torch.device("cpu"))
    torch.manual_seed(3)
    one, other = (int(each) % 2**32 for each in torch.randint(-(2**31), 2**31, (2,)))
    found = dropout.onto(torch.ones(2, 3, 5, 7, dtype=torch.float64))
    for h, b, i, j in torch.cartesian_prod(*map(torch.arange, found.shape)).tolist():
        stream = hashed(b * 2 + h, one, other), hashed(b * 2 + h, other, one)
        kept = hashed(i * 7 + j, *stream) >> 8 >= 2**24 // 4
        assert found[h, b, i, j] == (4 / 3 if kept else 0)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_masks_are_distributed_like_independent_draws(rate: float):
    torch.manual_seed(3)
    size = (6, 8, 60, 90)
    many = [PositionDropout.draw(8, 6, 90, rate, torch.device("cpu")) for _ in range(4)]
    kept = torch.stack([each.onto(torch.ones(size)) > 0 for each in many]).double()
    count, spread = kept.numel(), (rate * (1 - rate)) ** 0.5
    assert abs(kept.mean() - (1 - rate)) < 4 * spread / count**0.5
    centred = (kept - (1 - rate)) / spread
    for dim in range(5):  # passes, heads, streams, queries, keys: no part is dropped more
        means = centred.movedim(dim, 0).flatten(1).mean(1)
        assert means.abs().max() < 4.5 * (kept.shape[dim] / count) ** 0.5
        beside = centred.narrow(dim, 0, kept.shape[dim] - 1) * centred.narrow(
            dim, 1, kept.shape[dim] - 1
        )
        assert abs(beside.mean()) < 4 / beside.numel() ** 0.5


def test_bfloat16_stays_close_to_float32(used: list[int]):
    model, span = transformer("xl").float().train(), AttentionSpan(mem_len=6)
    exact, *_ = trained(model, span, forget=False, watch=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss, *gradients = trained(model, span, forget=False, watch=False)
    assert used
    assert abs(loss - exact) / exact < 1e-2
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)


def test_a_cuda_device_takes_it_in_training_unless_heads_are_small():
    def path(model: Any, fusable: bool = True) -> str:
        found: str = model.blocks[0].attention.path("cuda", fusable)
        return found

    model = transformer("xl", d_head=16, dropatt=0.1).train()
    assert (path(model), path(model, fusable=False)) == ("flex", "plain")
    assert path(transformer("xl", d_head=5).train()) == "plain"
    model.blocks[0].attention.fuses = False
    assert path(model) == "plain"
    assert path(transformer("xl", d_head=16)) == "plain"  # in evaluation


def test_the_plain_path_on_a_device_keeps_no_probabilities_for_the_gradient(
    monkeypatch: pytest.MonkeyPatch,
):
    """With attention dropout, computed twice: here on the CPU, with heads too small for kernels."""
    model, found = transformer("xl", dropatt=0.3).train(), {}
    for block in model.blocks:
        block.attention.acts_on = "cuda"
    recomputes = Attention._recomputes
    for device in ("cpu", "cuda"):
        kept: list[torch.Tensor] = []
        monkeypatch.setattr(
            Attention, "_recomputes", lambda self, _, s, d=device: recomputes(self, d, s)
        )
        with torch.autograd.graph.saved_tensors_hooks(partial(keep, kept), lambda t: t):
            found[device] = trained(model, SPANS["memory"], forget=True, watch=False)
        largest = max((tensor.numel() for tensor in kept if tensor.dim() == 4), default=0)
        assert (largest >= 2 * 5 * 5 * 10) == (device == "cpu")  # [H, B, T, S]
    for one, other in zip(found["cpu"], found["cuda"], strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, other, rtol=0, atol=1e-12)


def keep(kept: list[torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    kept.append(tensor)
    return tensor
