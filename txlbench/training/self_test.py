"""Is a CUDA device's fused attention the plain one? Asked before the first training step there.

A model of the run's widths and encoding, two layers deep and with few words, reads a segment
behind a full memory in the shapes, the number format and the attention dropout of the run's steps,
which the kernel is compiled for. Its losses and gradients are computed three ways: fused; plain
in the same format, for the first streams alone; and plain in float64. The fused ones may be some
times as far from the exact ones as the plain ones are. If one is farther, or anything fails,
training takes the plain path: slower, and right.
"""

import copy
import math
import time
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from txlbench import seeding
from txlbench.config.base import AttentionSpan
from txlbench.config.model import ModelConfig
from txlbench.models.attention import Attention
from txlbench.models.factory import build_model
from txlbench.models.interface import LanguageModel, State
from txlbench.records.schema import AttentionFacts, AttentionPath
from txlbench.training.loop import Settings
from txlbench.training.runtime import autocast, products
from txlbench.training.state import full_size_memory

LAYERS, VOCABULARY = 2, 64
SCORES = 2**24
"""Scores of a layer that the plain paths hold at once, 128 MB in float64: so many streams."""
TIMES = 4.0
"""How many times as far from the exact result as the plain path the fused one may be."""
ROUNDING = {"fp32": 1e-3, "tf32": 1e-2, "bf16": 0.1}
"""And how far beyond, as a share of a tensor's norm. Sums of many bf16 gradients, as those of
biases, are noise to several hundredths; wrong positions or masks show as a half and more."""
LEAST_NORM = 1e-6
"""Of a tensor, as a share of the largest gradient's norm: what is smaller is rounding itself."""


@dataclass(frozen=True)
class KernelShape:
    """What a kernel is compiled for, and tested in.

    Attributes:
        rows: streams of a chunk of the batch.
        acts_on: the type of device by whose rules, for tests on a CPU; None for its own.
    """

    rows: int
    tgt_len: int
    span: AttentionSpan
    precision: str
    device: torch.device
    acts_on: str | None = None

    def plain_rows(self, heads: int) -> int:
        """The first streams, which the plain paths compute."""
        scores = heads * self.tgt_len * (self.tgt_len + self.span.mem_len)
        return max(1, min(self.rows, SCORES // scores))


def settle_attention(
    model: LanguageModel, config: ModelConfig, settings: Settings, acts_on: str | None = None
) -> AttentionFacts | None:
    """Settles on which path a model computes attention in training: on a CUDA device by the test.

    Processes that share a run take the same path.

    Returns:
        What was settled, for the run's record; None for a model without this attention.
    """
    train, world = settings.train, settings.world
    shape = KernelShape(
        train.batch_size // train.batch_chunk // world.size,
        train.tgt_len,
        settings.span,
        settings.precision,
        settings.device,
        acts_on,
    )
    path = _path(model, shape)
    if path is None:
        return None
    if path != "flex":
        return AttentionFacts(path="plain" if train.compile else path)
    found = compare_attention(config, shape)
    (fails,) = world.agree(found.path == "plain")
    if fails and found.path == "flex":
        changes = {"path": "plain", "reason": "it failed in another process"}
        found = found.model_copy(update=changes)
    _set(model, acts_on, fuses=not fails)
    return found


def not_fused(reason: str) -> str:
    """What a user should know of a kernel that failed its test."""
    return f"attention takes the plain path, as the device's fused one failed its test: {reason}"


def compare_attention(config: ModelConfig, shape: KernelShape) -> AttentionFacts:
    """The fused path's largest difference, and which path to take for it.

    Random sources are in the end where they were.
    """
    before, begin = seeding.capture(), time.monotonic()
    numbers: dict[str, float] = {}
    try:
        worst = _compared(config, shape)
        reason = None if worst.holds else f"{worst.name} is off by {worst.difference:.1%}"
        if math.isfinite(worst.difference):
            numbers = {"difference": worst.difference, "allowed": worst.allowed}
        elif not worst.holds:
            reason = f"{worst.name} is no finite number, or has no gradient"
    except Exception as error:  # a compiler's, a driver's, PyTorch's: the plain path is left
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    finally:
        seeding.restore(before)
    seconds = time.monotonic() - begin
    path: AttentionPath = "flex" if reason is None else "plain"
    return AttentionFacts(path=path, reason=reason, seconds=seconds, **numbers)


class _Difference(NamedTuple):
    """How far a tensor of the fused path is from the exact one, and may be."""

    name: str
    difference: float
    allowed: float

    @property
    def holds(self) -> bool:
        return self.difference <= self.allowed


def _compared(config: ModelConfig, shape: KernelShape) -> _Difference:
    """The tensor that is farthest from what is allowed."""
    torch.manual_seed(1)
    sizes = {"n_layer": min(LAYERS, config.n_layer), "cutoffs": (), "div_val": 1}
    undropped = {"tie_projs": (False,), "dropout": 0.0, "dropoute": 0.0}
    model = build_model(config.model_copy(update=sizes | undropped), VOCABULARY)
    _draw(model)
    model = model.to(shape.device).train()
    tokens = torch.randint(VOCABULARY, (shape.rows, shape.tgt_len + 1)).to(shape.device)
    state = _remembering(model, shape)
    few = shape.plain_rows(config.n_head)
    first = state.replace({name: tensor[:few] for name, tensor in state.tensors().items()})
    exact = copy.deepcopy(model).double()
    exact_first = first.replace({k: _doubled(v) for k, v in first.tensors().items()})
    _set(exact, shape.acts_on, fuses=False)
    exactly = _trained(exact, tokens[:few], exact_first, "fp32", shape, few)
    _set(model, shape.acts_on, fuses=False)
    plainly = _trained(model, tokens[:few], first, shape.precision, shape, few)
    _set(model, shape.acts_on, fuses=True)
    fused = _trained(model, tokens, state, shape.precision, shape, few)
    norms = {name: float(tensor.norm()) for name, tensor in exactly.items()}
    least = LEAST_NORM * max(norms.values())

    def difference(name: str) -> _Difference:
        norm = max(norms[name], least)
        plain, own = (
            float((each[name] - exactly[name]).norm()) / norm if name in each else math.nan
            for each in (plainly, fused)
        )
        return _Difference(name, own, TIMES * plain + ROUNDING[shape.precision])

    return max((difference(name) for name in exactly), key=_excess)


def _excess(each: _Difference) -> float:
    """Over what is allowed; what is no number, or is not there, is farthest."""
    ratio = each.difference / each.allowed
    return math.inf if math.isnan(ratio) else ratio


def _draw(model: nn.Module) -> None:
    """Weights by which queries tell keys apart: initial ones leave attention flat."""
    for name, weight in model.named_parameters():
        is_scale = name.endswith("norm.weight")
        of_positions = name.startswith("encoding.") and not name.endswith(".weight")
        spread = 1.0 if of_positions else max(weight.shape[-1], 1) ** -0.5
        nn.init.normal_(weight, float(is_scale), spread)


def _remembering(model: LanguageModel, shape: KernelShape) -> State:
    """A memory of full size, of which streams see from nothing to all."""
    state = full_size_memory(model, shape.rows, shape.span)
    tensors = {
        name: torch.randn(tensor.shape).to(tensor) if tensor.is_floating_point() else tensor
        for name, tensor in state.tensors().items()
    }
    if "known" in tensors:
        share = torch.linspace(1, 0, shape.rows)
        tensors["known"] = (share * shape.span.mem_len).long().to(shape.device)
    return state.replace(tensors)


def _trained(
    model: LanguageModel,
    tokens_BT: Tensor,
    state: State,
    precision: str,
    shape: KernelShape,
    rows: int,
) -> dict[str, Tensor]:
    """Losses of the first `rows` streams and all gradients of their sum, in float64, by name."""
    # One mask of attention dropout for all paths, whose first streams are those of fewer.
    torch.manual_seed(2)
    with products(precision), autocast(precision, shape.device):
        hidden_BTD, _ = model(tokens_BT[:, :-1], state)
        losses_BT = model.losses(hidden_BTD, tokens_BT[:, 1:])[:rows]
    weights = {name: weight for name, weight in model.named_parameters() if weight.numel()}
    gradients = torch.autograd.grad(losses_BT.sum(), [*weights.values()], allow_unused=True)
    found = dict(zip(weights, gradients, strict=True)) | {"the loss": losses_BT.detach()}
    return {name: tensor.double() for name, tensor in found.items() if tensor is not None}


def _doubled(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _path(model: LanguageModel, shape: KernelShape) -> AttentionPath | None:
    """The path that the first layer would take in training, before any test; None without one."""
    layers = _set(model, shape.acts_on, fuses=True)
    encoding = getattr(model, "encoding", None)
    if not layers or encoding is None:
        return None
    return layers[0].path(shape.acts_on or shape.device.type, encoding.has_terms)


def _set(model: nn.Module, acts_on: str | None, fuses: bool) -> list[Attention]:
    layers = [part for part in model.modules() if isinstance(part, Attention)]
    for layer in layers:
        layer.acts_on, layer.fuses = acts_on, fuses
    return layers
