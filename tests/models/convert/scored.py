"""The golden folders, and losses of converted models to compare with theirs."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from txlbench.config.base import AttentionSpan
from txlbench.config.model import ModelConfig
from txlbench.models.convert.hf import read_config
from txlbench.models.convert.official import Converted
from txlbench.models.factory import build_model

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
CASES = ["plain", "one-table", "narrow", "shared", "own"]
TIED = ["plain", "narrow", "shared"]
"""Cases whose layers share u and v, as all models of the released PyTorch code."""


def golden(case: str, memory: str = "empty") -> NDArray[np.float32]:
    """The losses that Hugging Face's class gave."""
    return np.load(GOLDEN / case / "losses.npz")[memory]


@torch.no_grad()
def losses(converted: Converted, folder: Path, memory: str = "empty") -> NDArray[np.float32]:
    """Our losses of the tokens in `folder`, seen as that folder's configuration says."""
    given, source = np.load(folder / "losses.npz"), read_config(folder / "config.json")
    tokens = torch.from_numpy(given["tokens"].astype(np.int64))
    model = build_model(converted.config, converted.vocabulary_size).eval()
    model.load_state_dict(converted.weights)
    state = model.initial_state(
        len(tokens),
        AttentionSpan(
            mem_len=source.mem_len,
            clamp_len=source.model.clamp_len,
            same_length=source.model.same_length,
        ),
    )
    if memory == "zeros":
        zeros = torch.zeros(len(tokens), source.mem_len, converted.config.d_model)
        state = state.replace(dict.fromkeys(state.tensors(), zeros))
    found, start = [], 0
    for length in given["cuts"].tolist():
        hidden, state = model(tokens[:, start : start + length], state)
        found.append(model.losses(hidden, tokens[:, start + 1 : start + length + 1]))
        start += length
    return torch.cat(found, dim=1).numpy()


def of_our_own(**settings: Any) -> Converted:
    """A small model of 30 tokens with random weights, large enough to matter."""
    sizes = {"n_layer": 2, "d_model": 12, "n_head": 2, "d_head": 5, "d_inner": 16}
    config = ModelConfig.model_validate({**sizes, **settings})
    torch.manual_seed(3)
    model = build_model(config, 30)
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, float(name.endswith("norm.weight")), 0.3)
    return Converted(config, 30, model.state_dict())


def same_weights(one: Converted, other: Converted) -> bool:
    """Whether names, order and every bit agree."""
    pairs = zip(one.weights.items(), other.weights.items(), strict=True)
    return all(a == b and torch.equal(x, y) and x.dtype == y.dtype for (a, x), (b, y) in pairs)
