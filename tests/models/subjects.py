"""The models that the contract suite is run on; a new kind or encoding is added here, once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tests.models.plugin_encoding import KEY_DECAY
from tests.models.plugin_rotary import ROTARY
from txlbench.config.base import AttentionSpan
from txlbench.config.catalogue import ENCODINGS, register_encoding
from txlbench.config.model import ModelConfig
from txlbench.evaluation import invariants
from txlbench.evaluation.invariants import strengthen
from txlbench.models.factory import build_model
from txlbench.models.transformer import Transformer

VOCABULARY = 13
PLUGINS = {"key-decay": KEY_DECAY, "rotary": ROTARY}
for name, entry in PLUGINS.items():
    register_encoding(name, entry)


def small(**settings: Any) -> Any:
    """A small model in float64, evaluation mode, with weights large enough to matter."""
    config = ModelConfig.model_validate({"n_layer": 2, "d_model": 12, "dropout": 0.0, **settings})
    torch.manual_seed(1)
    model = build_model(config, VOCABULARY).double().eval()
    strengthen(model)
    return model


def transformer(encoding: str, **settings: Any) -> Transformer:
    """A small transformer with this encoding."""
    sizes = {"n_head": 2, "d_head": 5, "d_inner": 16}
    if ENCODINGS[encoding].default_max_distance is not None:
        sizes["max_distance"] = 40
    return small(encoding=encoding, **{**sizes, **settings})


@dataclass(frozen=True)
class Subject:
    """A kind of model under contract.

    Attributes:
        build: makes one from settings of the model's configuration.
        relative: it sees distances only, so that where segments are cut does not matter.
        attends: it sees keys, as many as mem_len and same_length decide; else it reads on from
            a state that holds all that came before.
        clamps: it can count far distances as equal (`clamp_len`).
        remembers_inputs: a token is remembered as its segment saw it, until it is dropped.
    """

    name: str
    build: Callable[..., Any]
    relative: bool
    attends: bool = True
    clamps: bool = True
    remembers_inputs: bool = True


def _encoding(name: str, label: str = "", **fixed: Any) -> Subject:
    build = lambda **settings: transformer(name, **{**fixed, **settings})  # noqa: E731
    entry, plain = ENCODINGS[name], fixed.get("memory", "xl") == "xl"
    clamps = entry.relative and entry.clamps and plain
    return Subject(label or name, build, entry.relative, clamps=clamps, remembers_inputs=plain)


SUBJECTS = [
    *(_encoding(name) for name in ENCODINGS),
    _encoding("xl", label="xl-pre-lnorm", pre_lnorm=True, untie_r=True),
    _encoding("shaw", label="shaw-bias", shaw_bias=True),
    _encoding("xl", label="xl-shift", memory="shift"),
    _encoding("rope", label="rope-compressive", memory="compressive", compress_rate=2),
    *(
        Subject(kind, partial(small, kind=kind), relative=True, attends=False, clamps=False)
        for kind in ("lstm", "qrnn")
    ),
    *(
        Subject(
            kind,
            partial(small, kind=kind, n_head=2, d_head=6, d_inner=16),
            relative=True,
            attends=False,
            clamps=False,
        )
        for kind in ("gla", "gated-delta")
    ),
]
RELATIVE = [s for s in SUBJECTS if s.relative and s.remembers_inputs]
NOT_RELATIVE = [subject for subject in SUBJECTS if not subject.relative]
ATTENDING = [s for s in SUBJECTS if s.attends and s.remembers_inputs]
FORGETTING = [subject for subject in SUBJECTS if "compressive" not in subject.name]


def text(length: int, batch: int = 1, seed: int = 5) -> Tensor:
    """Random tokens [B, length]."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (batch, length), generator=generator)


def influence(model: Any, tokens: Tensor, cuts: list[int], span: AttentionSpan) -> Tensor:
    """Whether changing input token p changes the loss at position q: bool [p, q]."""
    return invariants.influence(model, tokens, cuts, span, VOCABULARY) > invariants.ROUNDING


@contextmanager
def embedded_leaves(model: Any) -> Iterator[list[Tensor]]:
    """Collects what the embedding gives, as leaves that gradients can be asked for."""
    leaves: list[Tensor] = []

    def cut(module: nn.Module, given: Any, output: Tensor) -> Tensor:
        leaves.append(output.detach().requires_grad_())
        return leaves[-1]

    handle = model.embedding.register_forward_hook(cut)
    try:
        yield leaves
    finally:
        handle.remove()
