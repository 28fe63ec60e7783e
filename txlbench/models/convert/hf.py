"""Hugging Face's Transformer-XL folders, read and written: `config.json` and the weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from txlbench.config.model import ModelConfig
from txlbench.errors import UserError
from txlbench.files import read_json, write_json
from txlbench.models.convert.hf_files import read_tokens, read_weights, write_tokens, write_weights
from txlbench.models.convert.official import (
    Converted,
    from_official,
    model_config,
    to_official,
)
from txlbench.models.convert.torch_load import without_wrappers

MODEL_TYPE = "transfo-xl"
SAME_NAMES = (
    *("n_layer", "d_model", "n_head", "d_head", "d_inner", "d_embed", "div_val", "cutoffs"),
    *("untie_r", "pre_lnorm", "dropout", "dropatt", "init_std", "proj_init_std"),
)
DEFAULTS: Mapping[str, object] = {
    **{"vocab_size": 267735, "cutoffs": [20000, 40000, 200000], "div_val": 4, "n_layer": 18},
    **{"d_model": 1024, "d_embed": 1024, "n_head": 16, "d_head": 64, "d_inner": 4096},
    **{"pre_lnorm": False, "mem_len": 1600, "clamp_len": 1000, "same_length": True},
    **{"dropout": 0.1, "dropatt": 0.0, "untie_r": True, "init_std": 0.02, "proj_init_std": 0.01},
}
"""What a key stands for that the file leaves out: the class's defaults."""

ALIASES = {
    "vocab_size": "n_token",
    "d_model": "hidden_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
}
FIXED: Mapping[str, object] = {
    "attn_type": 0,
    "sample_softmax": -1,
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
}
"""Keys with one value that this package can express."""


@dataclass(frozen=True)
class SourceConfig:
    """What `config.json` says: the model, and how it is evaluated."""

    model: ModelConfig
    vocabulary_size: int
    mem_len: int
    tgt_len: int | None


def read_config(path: Path) -> SourceConfig:
    """The content of `config.json`; UserError naming file and key."""
    if not path.exists():
        raise UserError(f"{path}: no such file", "is it a Hugging Face model folder?")
    given = read_json(path)
    if not isinstance(given, dict) or given.get("model_type", MODEL_TYPE) != MODEL_TYPE:
        found = given.get("model_type") if isinstance(given, dict) else type(given).__name__
        raise UserError(f"{path}: model_type: {found!r} found", f"only {MODEL_TYPE} can be read")
    for key, value in FIXED.items():
        if given.get(key, value) != value:
            raise UserError(f"{path}: {key}: {given[key]!r} found", f"only {value!r} can be read")
    values = {**DEFAULTS, **given}
    for key, alias in ALIASES.items():
        if alias in given and key not in given:
            values[key] = given[alias]
    settings = {key: values[key] for key in SAME_NAMES}
    settings |= _span(path, values)
    config = model_config(path, {**settings, "tie_projs": _ties(given, values["cutoffs"])})
    tgt_len = None if values.get("tgt_len") is None else _whole(path, values, "tgt_len", 1)
    size, mem_len = _whole(path, values, "vocab_size", 1), _whole(path, values, "mem_len", 0)
    return SourceConfig(config, size, mem_len, tgt_len)


def to_json(converted: Converted) -> dict[str, object]:
    """The content of `config.json`; UserError naming what it cannot express."""
    config = converted.config
    for key, value, wanted in (
        ("model.kind", config.kind, "transformer"),
        ("model.encoding", config.encoding, "xl"),
        ("model.memory", config.memory, "xl"),
    ):
        if value != wanted:
            raise UserError(f"{key}: {value} has no Hugging Face class", f"only {wanted} does")
    if config.d_model % 2:
        raise UserError(
            f"model.d_model: {config.d_model} is odd, but Hugging Face's class makes sines and "
            "cosines in pairs",
            "use an even one",
        )
    if config.clamp_len == 0:
        raise UserError("clamp_len: 0 means no limit to Hugging Face's class", "use at least 1")
    if config.same_length and not converted.mem_len:
        raise UserError("same_length: without mem_len no token sees a key", "give mem_len")
    dumped = config.model_dump(mode="json")
    ties: list[bool] = dumped["tie_projs"]
    return {
        "architectures": ["TransfoXLLMHeadModel"],
        "model_type": MODEL_TYPE,
        "vocab_size": converted.vocabulary_size,
        **{key: dumped[key] for key in SAME_NAMES},
        "proj_share_all_but_first": ties == [False] + [True] * (len(ties) - 1),
        "tie_projs": ties,
        "mem_len": converted.mem_len or 0,
        **({} if converted.tgt_len is None else {"tgt_len": converted.tgt_len}),
        "clamp_len": -1 if config.clamp_len is None else config.clamp_len,
        "same_length": config.same_length,
        "torch_dtype": "float32",
        **FIXED,
    }


def _ties(given: Mapping[str, Any], cutoffs: Any) -> Any:
    """Which projections are tied: as listed, else by the flag, which is on by default."""
    if given.get("tie_projs") is not None:
        return given["tie_projs"]
    tails = len(cutoffs) if isinstance(cutoffs, list) else 0
    return [False] + [bool(given.get("proj_share_all_but_first", True))] * tails


def _span(path: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """clamp_len and same_length as a model's configuration has them."""
    clamp = _whole(path, values, "clamp_len", None)
    mem_len, same_length = _whole(path, values, "mem_len", 0), values["same_length"]
    if same_length not in (True, False):
        raise UserError(f"{path}: same_length: {same_length!r} found", "use true or false")
    if same_length and not mem_len:
        raise UserError(
            f"{path}: same_length: true with mem_len 0 lets no token see a key",
            "set same_length to false",
        )
    return {"clamp_len": clamp if clamp > 0 else None, "same_length": same_length}


def _whole(path: Path, values: Mapping[str, Any], key: str, least: int | None) -> int:
    value = values[key]
    if type(value) is not int or (least is not None and value < least):
        bound = "" if least is None else f" of at least {least}"
        raise UserError(f"{path}: {key}: {value!r} found", f"use a whole number{bound}")
    return value


PREFIX = "transformer."
BIASES = ("r_w_bias", "r_r_bias")


def read_hf(directory: Path, reversed_clusters: bool = False) -> Converted:
    """Reads `config.json`, the weights, and the vocabulary where it is no pickle.

    Args:
        reversed_clusters: the softmax's tail clusters stand last to first, as in weights that
            were trained with the released PyTorch code and only renamed. Nothing in such a folder
            tells; the wrong choice shows as a much higher loss.

    Raises:
        UserError: naming file and key, for what is missing, damaged or another kind of model.
    """
    source = read_config(directory / "config.json")
    config, vocabulary_size = source.model, source.vocabulary_size
    path, tensors = read_weights(directory)
    if config.n_layer > len(tensors):  # before names are made of so many layers
        raise UserError(
            f"{directory / 'config.json'}: n_layer: {config.n_layer} found",
            f"{path.name} has {len(tensors)} tensors in all",
        )
    tensors = {without_wrappers(name).removeprefix(PREFIX): part for name, part in tensors.items()}
    for bias in BIASES:
        _gather(path, tensors, bias, config.n_layer, config.untie_r)
    if reversed_clusters:
        reverse_clusters(tensors)
    weights = from_official(path, config, vocabulary_size, tensors)
    tokens = read_tokens(directory, vocabulary_size)
    return Converted(
        config, vocabulary_size, weights, source.mem_len, source.tgt_len, tokens=tokens
    )


def write_hf(converted: Converted, directory: Path) -> None:
    """Writes a folder that transformers' `TransfoXLLMHeadModel.from_pretrained` loads.

    Raises:
        UserError: if the folder is not empty, or the class cannot express the model.
    """
    config = converted.config
    content = to_json(converted)
    if directory.exists() and any(directory.iterdir()):
        raise UserError(f"{directory}: not empty", "choose another folder")
    tensors = to_official(config, converted.weights)
    for bias in BIASES:
        _scatter(tensors, bias, config.untie_r)
    tensors["pos_emb.inv_freq"] = 10000.0 ** (
        -torch.arange(0, config.d_model, 2.0) / config.d_model
    )
    write_weights(directory, {_prefixed(name): tensor for name, tensor in tensors.items()})
    if converted.tokens is not None:
        write_tokens(directory, converted.tokens)
    write_json(directory / "config.json", content)


def reverse_clusters(tensors: dict[str, Tensor]) -> None:
    """Reverses the order of the tail clusters' rows, in place.

    The released PyTorch code takes tail i from column -i of the head; the TensorFlow code, Hugging
    Face and this package take it from the i-th column after the head's tokens (erratum E21).
    """
    for name in ("crit.cluster_weight", "crit.cluster_bias"):
        if name in tensors:
            tensors[name] = tensors[name].flip(0)


def _gather(path: Path, tensors: dict[str, Tensor], bias: str, layers: int, untied: bool) -> None:
    """Makes `bias` [1 or N, H, K] from tensors of all layers or of each layer.

    A bias of all layers appears again in each, or only there.
    """
    names = [f"layers.{layer}.dec_attn.{bias}" for layer in range(layers)]
    own = [tensors.pop(name) for name in names if name in tensors]
    if untied:
        if len(own) == layers and len({part.shape for part in own}) == 1:
            tensors[bias] = torch.stack(own)
        return
    copies = [*([tensors[bias]] if bias in tensors else []), *own]
    if any(not torch.equal(copies[0], copy) for copy in copies):
        raise UserError(f"{path}: {bias}: layers differ, but untie_r is false", "mend config.json")
    if copies:
        tensors[bias] = copies[0][None]


def _scatter(tensors: dict[str, Tensor], bias: str, untied: bool) -> None:
    """Undoes `_gather`, in the names that Hugging Face saves."""
    owners = tensors.pop(bias)
    if not untied:
        tensors[bias] = owners[0].clone()
        return
    for layer, own in enumerate(owners):
        tensors[f"layers.{layer}.dec_attn.{bias}"] = own.clone()


def _prefixed(name: str) -> str:
    return name if name.startswith("crit.") else PREFIX + name
