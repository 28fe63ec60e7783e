"""Weights under the names of the released PyTorch code, which Hugging Face's port keeps.

There one matrix `qkv_net` makes queries, keys and values, and the softmax has one bias for each
table; u and v are `r_w_bias` and `r_r_bias`, here with the layers that own them in front: [1 or
N, H, K]. Tail clusters come in the order of the vocabulary.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from txlbench.config.clusters import softmax_projections
from txlbench.config.model import ModelConfig
from txlbench.errors import UserError
from txlbench.models.fitting import skeleton

LAYER_NAMES = {
    "attention.o_net.weight": "dec_attn.o_net.weight",
    "attention_norm.weight": "dec_attn.layer_norm.weight",
    "attention_norm.bias": "dec_attn.layer_norm.bias",
    "feed_forward.inner.weight": "pos_ff.CoreNet.0.weight",
    "feed_forward.inner.bias": "pos_ff.CoreNet.0.bias",
    "feed_forward.outer.weight": "pos_ff.CoreNet.3.weight",
    "feed_forward.outer.bias": "pos_ff.CoreNet.3.bias",
    "feed_forward_norm.weight": "pos_ff.layer_norm.weight",
    "feed_forward_norm.bias": "pos_ff.layer_norm.bias",
}
"""Within a layer, ours -> theirs, where the tensors are the same."""

IGNORED = frozenset({"pos_emb.inv_freq"})
"""Buffers that are computed here."""

Tensors = Mapping[str, Tensor]


def from_official(
    path: Path, config: ModelConfig, vocabulary_size: int, tensors: Tensors
) -> dict[str, Tensor]:
    """The model's state dict from official names.

    Raises:
        UserError: naming `path` and the key, if a tensor is missing, unknown or of another shape,
            or if weights that must be tied differ.
    """
    mine = skeleton(path, config, vocabulary_size)
    _check_shapes(path, to_official(config, mine), tensors)
    _check_others(path, _duplicates(config), to_official(config, mine), tensors)
    weights = {ours: tensors[theirs].float() for ours, theirs in _names(config).items()}
    inner = config.n_head * config.head_size
    for layer in range(config.n_layer):
        qkv = tensors[f"layers.{layer}.dec_attn.qkv_net.weight"].float()
        attention = f"blocks.{layer}.attention"
        weights[f"{attention}.q_net.weight"] = qkv[:inner].clone()
        weights[f"{attention}.kv_net.weight"] = qkv[inner:].clone()
    biases = [tensors[f"crit.out_layers.{table}.bias"] for table in range(_tables(config))]
    weights["softmax.bias"] = torch.cat(biases).float()
    if not config.cutoffs:
        for name in ("softmax.cluster_weight", "softmax.cluster_bias"):
            weights[name] = torch.empty(mine[name].shape)
    shared = {f"softmax.{name}": weights[name] for name in weights if name.startswith("embedding.")}
    return {name: (weights | shared)[name] for name in mine}


def to_official(config: ModelConfig, weights: Tensors) -> dict[str, Tensor]:
    """Official names from the model's state dict; tied weights appear once."""
    tensors = {theirs: weights[ours] for ours, theirs in _names(config).items()}
    for layer in range(config.n_layer):
        parts = [weights[f"blocks.{layer}.attention.{part}.weight"] for part in ("q_net", "kv_net")]
        tensors[f"layers.{layer}.dec_attn.qkv_net.weight"] = torch.cat(parts)
    bias, sizes = weights["softmax.bias"], _table_sizes(config, weights)
    for table, part in enumerate(bias.split(sizes)):
        tensors[f"crit.out_layers.{table}.bias"] = part.clone()
    return tensors


def _names(config: ModelConfig) -> dict[str, str]:
    """Ours -> theirs for every tensor that is the same."""
    names = {"encoding.u": "r_w_bias", "encoding.v": "r_r_bias"}
    for table in range(_tables(config)):
        names[f"embedding.tables.{table}"] = f"word_emb.emb_layers.{table}.weight"
        if _projected(config):
            names[f"embedding.projections.{table}"] = f"word_emb.emb_projs.{table}"
    owned = [cluster for cluster, own in enumerate(softmax_projections(config)) if own]
    for index, cluster in enumerate(owned):
        names[f"softmax.projections.{index}"] = f"crit.out_projs.{cluster}"
    if config.cutoffs:
        names["softmax.cluster_weight"] = "crit.cluster_weight"
        names["softmax.cluster_bias"] = "crit.cluster_bias"
    for layer in range(config.n_layer):
        names[f"encoding.r_net.{layer}.weight"] = f"layers.{layer}.dec_attn.r_net.weight"
        for ours, theirs in LAYER_NAMES.items():
            names[f"blocks.{layer}.{ours}"] = f"layers.{layer}.{theirs}"
    return names


def _duplicates(config: ModelConfig) -> dict[str, str]:
    """Names under which a tied tensor may appear again -> its name above."""
    tables = range(_tables(config))
    again = {
        f"crit.out_layers.{table}.weight": f"word_emb.emb_layers.{table}.weight" for table in tables
    }
    if _projected(config):
        for cluster, own in enumerate(softmax_projections(config)):
            if not own:
                table = cluster if len(tables) > 1 else 0
                again[f"crit.out_projs.{cluster}"] = f"word_emb.emb_projs.{table}"
    return again


def _tables(config: ModelConfig) -> int:
    return len(config.cutoffs) + 1 if config.div_val > 1 else 1


def _projected(config: ModelConfig) -> bool:
    return config.div_val > 1 or config.embed_size != config.d_model


def _table_sizes(config: ModelConfig, weights: Tensors) -> list[int]:
    return [len(weights[f"embedding.tables.{table}"]) for table in range(_tables(config))]


def _check_shapes(path: Path, expected: Tensors, tensors: Tensors) -> None:
    for key, tensor in expected.items():
        if key not in tensors:
            raise UserError(f"{path}: {key}: missing", "the file lacks a part of the model")
        found = tensors[key]
        if found.shape != tensor.shape:
            raise UserError(
                f"{path}: {key}: shape {list(found.shape)} found",
                f"the configuration asks for {list(tensor.shape)}",
            )
        if not found.is_floating_point() or found.dtype == torch.float64:
            raise UserError(
                f"{path}: {key}: {str(found.dtype).removeprefix('torch.')} found",
                "convert it to float32",
            )


def _check_others(
    path: Path, duplicates: Mapping[str, str], expected: Tensors, tensors: Tensors
) -> None:
    for key in sorted(tensors.keys() - expected.keys() - IGNORED):
        original = duplicates.get(key)
        if original is None:
            raise UserError(
                f"{path}: {key}: not a weight of this configuration", "is it another kind of model?"
            )
        if not torch.equal(tensors[key], tensors[original]):
            raise UserError(
                f"{path}: {key}: differs from {original}",
                "only models that tie softmax and embedding can be read",
            )
