"""The released PyTorch code's model files: a pickled module, or its state dict."""

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from txlbench.errors import UserError
from txlbench.models.convert import torch_load
from txlbench.models.convert.hf import PREFIX, reverse_clusters
from txlbench.models.convert.official import (
    Converted,
    from_official,
    inferred,
    model_config,
)
from txlbench.models.convert.torch_load import (
    CLASS_OF,
    Inert,
    class_of,
    edited,
    is_state_dict,
    without_wrappers,
)

WRAPPER = "module"
"""The name under which half-precision and parallel wrappers hold the model."""

MODEL_CLASSES = (
    *("PositionalEmbedding", "PositionwiseFF", "MultiHeadAttn", "RelMultiHeadAttn"),
    *("RelPartialLearnableMultiHeadAttn", "RelLearnableMultiHeadAttn", "DecoderLayer"),
    *("RelLearnableDecoderLayer", "RelPartialLearnableDecoderLayer", "AdaptiveEmbedding"),
    "MemTransformerLM",
)
CLASSES = (
    *(f"mem_transformer.{name}" for name in MODEL_CLASSES),
    "proj_adaptive_softmax.ProjectedAdaptiveLogSoftmax",
    "utils.proj_adaptive_softmax.ProjectedAdaptiveLogSoftmax",
    *("fp16_opt.FP16_Module", "utils.data_parallel.BalancedDataParallel"),
    "torch.nn.parallel.data_parallel.DataParallel",
    *(f"torch.nn.modules.container.{n}" for n in ("ModuleList", "ParameterList", "Sequential")),
    *("torch.nn.modules.linear.Linear", "torch.nn.modules.sparse.Embedding"),
    *("torch.nn.modules.dropout.Dropout", "torch.nn.modules.activation.ReLU"),
    "torch.nn.modules.normalization.LayerNorm",
    "torch.nn.backends.thnn._get_thnn_function_backend",
)
"""Of what the released code's model consists; each module of torch before 1.3 has a backend."""

NOT_IN_A_STATE_DICT = (
    "dropout, dropatt and pre_lnorm (taken as 0, 0 and false)",
    "mem_len, tgt_len, clamp_len and same_length",
)


def read_torch(path: Path) -> Converted:
    """Reads what `torch.save` wrote of the released code's model, executing nothing in it.

    Tail clusters are turned around to this package's order (erratum E21). Of a state dict the
    configuration is told by shapes, as far as they do; `notes` states the rest.

    Raises:
        UserError: naming file and key, or the class or function that the file would have called.
    """
    content = torch_load.weights_within(_load(path))
    model = _unwrapped(content) if isinstance(content, Inert) else None
    tensors = dict(_parameters(model)) if model else _state_dict(path, content)
    for bias in ("r_w_bias", "r_r_bias"):
        if bias in tensors:
            tensors[bias] = tensors[bias][None]
    reverse_clusters(tensors)
    return _convert(path, tensors, model)


def _load(path: Path) -> Any:
    if not path.is_file():
        raise UserError(f"{path}: no such file", "check the path")
    if zipfile.is_zipfile(path):
        return torch_load.load(path, _inert())
    return torch_load.load(path, _inert(), edited(path))


def _inert() -> Mapping[str, Any]:
    return {**dict.fromkeys(CLASSES, Inert), "builtins.set": set, CLASS_OF: class_of}


def _convert(path: Path, tensors: dict[str, Tensor], model: Inert | None) -> Converted:
    attributes = vars(model) if model else {}
    kind = attributes.get("attn_type", 0)
    if kind != 0:
        raise UserError(f"{path}: attn_type: {kind!r} found", "only 0, the paper's, can be read")
    cutoffs = _cutoffs(path, model) if model else None
    settings, vocabulary_size = inferred(path, tensors, untie_r=False, cutoffs=cutoffs)
    settings |= {"dropout": 0.0, "dropatt": 0.0, **(_told(model) if model else {})}
    span = _span(path, attributes)
    settings |= {key: span[key] for key in ("clamp_len", "same_length")}
    config = model_config(path, settings)
    weights = from_official(path, config, vocabulary_size, tensors)
    notes = () if model else NOT_IN_A_STATE_DICT
    return Converted(
        config, vocabulary_size, weights, span["mem_len"], span["tgt_len"], notes=notes
    )


def _state_dict(path: Path, content: Any) -> dict[str, Tensor]:
    if not is_state_dict(content):
        inside = content.items() if isinstance(content, dict) else ()
        keys = [repr(key) for key, value in inside if is_state_dict(value) and value]
        remedy = f"save what is under {keys[0]} alone" if keys else "save one of the two"
        raise UserError(f"{path}: neither a model nor a state dict", remedy)
    tensors = {without_wrappers(name): tensor for name, tensor in content.items()}
    if any(name.startswith(PREFIX) for name in tensors):
        raise UserError(f"{path}: Hugging Face's names found", "give its folder as hf:DIR")
    return tensors


def _unwrapped(module: Inert) -> Inert:
    inner = _parts(module).get(WRAPPER)
    return module if inner is None else _unwrapped(inner)


def _parameters(module: Inert, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The parameters of a module by name; absent ones are stored as None."""
    own = vars(module).get("_parameters")
    for name, value in own.items() if isinstance(own, dict) else ():
        if isinstance(value, Tensor):
            yield f"{prefix}{name}", value
    for name, part in _parts(module).items():
        yield from _parameters(part, f"{prefix}{name}.")


def _parts(module: Inert) -> dict[str, Inert]:
    """The modules inside a module by name."""
    parts = vars(module).get("_modules")
    if not isinstance(parts, dict):
        return {}
    return {name: part for name, part in parts.items() if isinstance(part, Inert)}


def _part(module: Inert, *names: str) -> dict[str, Any]:
    """The attributes of a nested module; empty if there is no such module."""
    for name in names:
        module = _parts(module).get(name, Inert())
    return vars(module)


def _told(model: Inert) -> dict[str, Any]:
    """The settings that the model's modules hold as attributes."""
    attention = ("layers", "0", "dec_attn")
    told = {
        "dropout": _part(model, "drop").get("p"),
        "dropatt": _part(model, *attention, "dropatt").get("p"),
        "pre_lnorm": _part(model, *attention).get("pre_lnorm"),
    }
    return {key: value for key, value in told.items() if value is not None}


def _cutoffs(path: Path, model: Inert) -> list[int]:
    ends = _part(model, "word_emb").get("cutoffs")
    if not isinstance(ends, list) or not all(type(end) is int for end in ends):
        raise UserError(f"{path}: word_emb.cutoffs: {ends!r} found", "it must list whole numbers")
    return ends[:-1]


def _span(path: Path, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """How the source evaluates, by our names; None where it does not say."""
    lengths = {key: attributes.get(key) for key in ("mem_len", "tgt_len", "clamp_len")}
    for key, value in lengths.items():
        if value is not None and type(value) is not int:
            raise UserError(f"{path}: {key}: {value!r} found", "it must be a whole number")
    clamp = lengths["clamp_len"]
    return {
        **lengths,
        "clamp_len": clamp if clamp is not None and clamp > 0 else None,
        "same_length": attributes.get("same_length") is True,
    }
