"""Files as the released PyTorch code saves them: the same classes, modules and attributes.

Only what is pickled matters here, so the classes have no `forward`. They exist in `sys.modules`
while a file is written, and not while it is read.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.models.convert.scored import GOLDEN
from txlbench.files import read_json

MODULES = {
    "mem_transformer": [
        "MemTransformerLM",
        "AdaptiveEmbedding",
        "PositionalEmbedding",
        "RelPartialLearnableDecoderLayer",
        "RelPartialLearnableMultiHeadAttn",
        "PositionwiseFF",
    ],
    "proj_adaptive_softmax": ["ProjectedAdaptiveLogSoftmax"],
    "torch.nn.backends.thnn": ["_get_thnn_function_backend"],
}


class Call:
    """Pickles to a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@contextmanager
def official_classes() -> Iterator[dict[str, type[nn.Module]]]:
    """The released code's classes by name, importable inside the context."""
    classes: dict[str, type[nn.Module]] = {}
    for module_name, names in MODULES.items():
        sys.modules[module_name] = module = ModuleType(module_name)
        for name in names:
            classes[name] = type(name, (nn.Module,), {"__module__": module_name})
            setattr(module, name, classes[name])
    try:
        yield classes
    finally:
        for module_name in MODULES:
            del sys.modules[module_name]


def hf_tensors(case: str) -> dict[str, Tensor]:
    """The golden weights by official names, tied ones included; tail clusters in their order."""
    tensors: dict[str, Tensor] = {}
    for file in (GOLDEN / case).iterdir():
        if file.suffix == ".safetensors":
            tensors |= load_file(file)
        elif file.suffix == ".bin":
            tensors |= torch.load(file, weights_only=True)
    names = {name: name.removeprefix("transformer.") for name in tensors}
    copies = {f"layers.{layer}.dec_attn.r_{x}_bias" for layer in range(9) for x in "wr"}
    return {names[name]: tensor for name, tensor in tensors.items() if names[name] not in copies}


def save_official(path: Path, case: str, turn: bool = True, **how: Any) -> None:
    """Writes the golden case as the released code's training script saves a model.

    Args:
        turn: whether tail clusters come last to first, as in that code.
        how: further arguments of torch.save.
    """
    with official_classes() as classes:
        torch.save(official_model(case, classes, turn), path, **how)


def official_model(case: str, classes: dict[str, type[nn.Module]], turn: bool) -> nn.Module:
    config, tensors = read_json(GOLDEN / case / "config.json"), hf_tensors(case)
    model = classes["MemTransformerLM"]()
    for key in ("n_layer", "n_head", "d_model", "d_head", "mem_len", "clamp_len", "same_length"):
        setattr(model, key, config[key])
    model.n_token, model.tgt_len, model.ext_len, model.attn_type = config["vocab_size"], 16, 0, 0
    model.drop = nn.Dropout(config["dropout"])
    model.drop._backend = Call(classes["_get_thnn_function_backend"])
    model.word_emb = _embedding(classes, config, tensors)
    model.layers = nn.ModuleList(
        _layer(classes, config, tensors, f"layers.{n}") for n in range(config["n_layer"])
    )
    model.crit = _softmax(classes, config, tensors, model.word_emb, turn)
    model.pos_emb = classes["PositionalEmbedding"]()
    model.pos_emb.register_buffer("inv_freq", tensors["pos_emb.inv_freq"])
    model.r_w_bias, model.r_r_bias = (nn.Parameter(tensors[f"r_{x}_bias"]) for x in "wr")
    return model


def _embedding(classes: Any, config: Any, tensors: dict[str, Tensor]) -> nn.Module:
    part = classes["AdaptiveEmbedding"]()
    part.cutoffs, part.div_val = config["cutoffs"] + [config["vocab_size"]], config["div_val"]
    part.emb_layers, part.emb_projs = nn.ModuleList(), nn.ParameterList()
    for table in range(len(part.cutoffs) if part.div_val > 1 else 1):
        weight = tensors[f"word_emb.emb_layers.{table}.weight"]
        part.emb_layers.append(nn.Embedding(*weight.shape, _weight=weight))
        if f"word_emb.emb_projs.{table}" in tensors:
            part.emb_projs.append(nn.Parameter(tensors[f"word_emb.emb_projs.{table}"]))
    return part


def _layer(classes: Any, config: Any, tensors: dict[str, Tensor], name: str) -> nn.Module:
    layer = classes["RelPartialLearnableDecoderLayer"]()
    layer.dec_attn = attention = classes["RelPartialLearnableMultiHeadAttn"]()
    attention.pre_lnorm, attention.dropatt = config["pre_lnorm"], nn.Dropout(config["dropatt"])
    layer.pos_ff = feed = classes["PositionwiseFF"]()
    for net in ("qkv_net", "r_net", "o_net"):
        setattr(attention, net, _linear(tensors, f"{name}.dec_attn.{net}"))
    inner, outer = (_linear(tensors, f"{name}.pos_ff.CoreNet.{place}") for place in (0, 3))
    feed.CoreNet = nn.Sequential(inner, nn.ReLU(inplace=True), nn.Dropout(0.1), outer)
    for part, place in ((attention, "dec_attn"), (feed, "pos_ff")):
        part.layer_norm = nn.LayerNorm(config["d_model"])
        for kind in ("weight", "bias"):
            value = nn.Parameter(tensors[f"{name}.{place}.layer_norm.{kind}"])
            setattr(part.layer_norm, kind, value)
    return layer


def _linear(tensors: dict[str, Tensor], name: str) -> nn.Linear:
    weight, bias = tensors[f"{name}.weight"], tensors.get(f"{name}.bias")
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight = nn.Parameter(weight)
    if bias is not None:
        linear.bias = nn.Parameter(bias)
    return linear


def _softmax(
    classes: Any, config: Any, tensors: dict[str, Tensor], embedding: Any, turn: bool
) -> nn.Module:
    part = classes["ProjectedAdaptiveLogSoftmax"]()
    part.out_layers, part.out_projs = nn.ModuleList(), nn.ParameterList()
    for table, source in enumerate(embedding.emb_layers):
        layer = nn.Linear(*reversed(source.weight.shape))
        layer.weight = source.weight
        layer.bias = nn.Parameter(tensors[f"crit.out_layers.{table}.bias"])
        part.out_layers.append(layer)
    shared = list(embedding.emb_projs)
    for cluster, tied in enumerate(config["tie_projs"]):
        if tied and shared:
            part.out_projs.append(shared[cluster if len(shared) > 1 else 0])
        else:
            own = tensors.get(f"crit.out_projs.{cluster}")
            part.out_projs.append(None if own is None else nn.Parameter(own))
    for name in ("cluster_weight", "cluster_bias") if config["cutoffs"] else ():
        rows = tensors[f"crit.{name}"]
        setattr(part, name, nn.Parameter(rows.flip(0) if turn else rows))
    return part
