"""Every kind of parameter starts from the distribution of the official PyTorch code."""

import math
import re
from typing import Any

import pytest
import torch

from txlbench import seeding
from txlbench.config.model import ModelConfig
from txlbench.models.factory import build_model

SIZES = {"n_layer": 2, "d_model": 96, "n_head": 4, "d_inner": 200, "init_std": 0.03}
ZERO, DRAWN, NORM, PROJECTION = (0.0, 0.0), (0.0, 0.03), (1.0, 0.03), (0.0, 0.007)
UNIFORM = (0.0, (96 * 3) ** -0.5)  # between -1/sqrt(d_model) and 1/sqrt(d_model)

KINDS = {
    r"embedding\.tables\.\d+": DRAWN,
    r"(embedding|softmax)\.projections\.\d+": PROJECTION,
    r"softmax\.(bias|cluster_bias)": ZERO,
    r"softmax\.cluster_weight": DRAWN,
    r"blocks\.\d\.attention\.(q|kv|o)_net\.weight": DRAWN,
    r"blocks\.\d\.feed_forward\.(inner|outer)\.weight": DRAWN,
    r"blocks\.\d\.feed_forward\.(inner|outer)\.bias": ZERO,
    r"blocks\.\d\.(attention|feed_forward)_norm\.weight": NORM,
    r"blocks\.\d\.(attention|feed_forward)_norm\.bias": ZERO,
    r"encoding\.r_net\.\d\.weight": DRAWN,
    r"encoding\.(u|v|table|content_bias)": DRAWN,
    r"encoding\.distance_bias": ZERO,
    r"encoding\.gates\.\d\.weight": DRAWN,
    r"encoding\.gates\.\d\.bias": ZERO,
    r"encoding\.p": (1.0, 3**-0.5),
    r"encoding\.a": (0.5, 12**-0.5),
    r"compressor\.convolutions\.\d\.weight": DRAWN,
    r"compressor\.convolutions\.\d\.bias": ZERO,
    r"layers\.\d\.[wb]_(ih|hh|gates)": UNIFORM,
    r"layers\.\d\.mixer\.(in|o|decay)_net\.weight": DRAWN,
    r"layers\.\d\.mixer\.decay_net\.bias": ZERO,
    r"layers\.\d\.mixer\.conv_weight": (0.0, 0.5 / 3**0.5),  # between -1/2 and 1/2
    r"layers\.\d\.mixer\.decay_rate": (math.log(16) - 1, 1.0),  # log of uniform below 16
    r"layers\.\d\.mixer\.decay_bias": (-4.58, 1.35),  # softplus of it log-uniform, 0.001 to 0.1
    r"layers\.\d\.feed_forward\.(inner|outer)\.weight": DRAWN,
    r"layers\.\d\.feed_forward\.(inner|outer)\.bias": ZERO,
    r"(layers\.\d\.)?(mixer|mixer\.read|feed_forward|output)_norm\.weight": NORM,
    r"(layers\.\d\.)?(mixer|feed_forward|output)_norm\.bias": ZERO,
}


@pytest.mark.parametrize(
    "settings",
    [
        {"encoding": "xl"},
        {"encoding": "xl", "untie_r": True, "d_embed": 64},
        {"encoding": "xl", "cutoffs": (100, 250), "div_val": 2, "tie_projs": (False, True, True)},
        {"encoding": "shaw", "max_distance": 40, "shaw_bias": True},
        {"encoding": "absolute"},
        {"encoding": "al-rfou", "max_distance": 40},
        *({"encoding": name, "max_distance": 40} for name in ("t5", "kerple", "fox", "learned")),
        {"memory": "compressive"},
        {"kind": "lstm"},
        {"kind": "qrnn"},
        {"kind": "gla"},
        {"kind": "gated-delta", "n_head": 32},
    ],
    ids=str,
)
def test_distributions_by_kind(settings: dict[str, Any]):
    seeding.seed_everything(1)
    config = ModelConfig.model_validate({**SIZES, "proj_init_std": 0.007, **settings})
    for name, parameter in build_model(config, 400).named_parameters():
        kinds = [kind for pattern, kind in KINDS.items() if re.fullmatch(pattern, name)]
        assert len(kinds) == 1, f"{name}: say in KINDS how it starts"
        if parameter.numel() == 0:
            continue
        mean, std = kinds[0]
        spread = parameter.numel() ** -0.5
        assert (parameter.mean() - mean).abs() <= 5 * std * spread, name
        assert (parameter.std(correction=0) - std).abs() <= 5 * std * spread, name


def test_the_seed_decides_every_weight():
    config = ModelConfig.model_validate(SIZES)

    def weights(seed: int) -> torch.Tensor:
        seeding.seed_everything(seed)
        return torch.cat([p.flatten() for p in build_model(config, 50).parameters()]).detach()

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))
