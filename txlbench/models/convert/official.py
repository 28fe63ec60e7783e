"""Weights under the names of the released PyTorch code, which Hugging Face's port keeps.

There one matrix `qkv_net` makes queries, keys and values, and the softmax has one bias for each
table; u and v are `r_w_bias` and `r_r_bias`, here with the layers that own them in front: [1 or
N, H, K]. Tail clusters come in the order of the vocabulary. Every reader of foreign weights returns
a `Converted`; the configuration of a source that brings none is inferred from the shapes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, count, takewhile
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor

from txlbench.config.model import ModelConfig, softmax_projections
from txlbench.errors import UserError
from txlbench.models.factory import check_finite, skeleton


@dataclass(frozen=True)
class Converted:
    """A model as `build_model(config, vocabulary_size)` and `load_state_dict(weights)` make it.

    Attributes:
        config: clamp_len and same_length as the source evaluates.
        weights: float32 tensors by the exact names of the model's state dict.
        mem_len: cached states in the source's evaluation, None where it does not say.
        tgt_len: tokens of a segment there, likewise.
        tokens: the vocabulary in order of id, where the source has one that is no pickle.
        notes: what the source does not say and was taken for granted, one phrase each.
    """

    config: ModelConfig
    vocabulary_size: int
    weights: dict[str, Tensor]
    mem_len: int | None = None
    tgt_len: int | None = None
    tokens: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()


def model_config(path: Path, settings: Mapping[str, Any]) -> ModelConfig:
    """The configuration with these settings; UserError naming file and key if it is none."""
    try:
        return ModelConfig.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "configuration"
        raise UserError(
            f"{path}: {key}: {first['msg']} (found {first['input']!r})", "mend the file"
        ) from error


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
    """Maps our names to theirs for every tensor that is the same."""
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
        check_finite(path, key, found)


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


_TABLE = "word_emb.emb_layers.0.weight"


def inferred(
    path: Path, tensors: Tensors, untie_r: bool, cutoffs: Sequence[int] | None = None
) -> tuple[dict[str, Any], int]:
    """Infers the model's settings and its vocabulary size from the shapes.

    Args:
        tensors: by official names, u and v as [owners, H, K].
        untie_r: whether each layer owns a u and a v, which one layer's shape cannot tell.
        cutoffs: where the source tells them; shapes do for `div_val` above 1 only.

    Raises:
        UserError: naming `path` and the key that is missing or ambiguous.
    """
    first = needed(path, tensors, "layers.0.dec_attn.qkv_net.weight")
    _, heads, size = needed(path, tensors, "r_w_bias").shape
    tables = _all(tensors, "word_emb.emb_layers.{}.weight")
    sizes = [len(table) for table in tables] or [len(needed(path, tensors, _TABLE))]
    if cutoffs is None:
        cutoffs = _cutoffs(path, sizes, tensors)
    settings: dict[str, Any] = {
        "n_layer": len(_all(tensors, "layers.{}.dec_attn.qkv_net.weight")),
        "d_model": first.shape[1],
        "n_head": heads,
        "d_head": size,
        "d_inner": len(needed(path, tensors, "layers.0.pos_ff.CoreNet.0.weight")),
        "d_embed": tables[0].shape[1],
        "untie_r": untie_r,
        "cutoffs": tuple(cutoffs),
    }
    settings["div_val"] = _div_val(path, [table.shape[1] for table in tables], tensors, first)
    settings["tie_projs"] = _ties(tensors, len(cutoffs) + 1)
    return settings, sum(sizes)


def needed(path: Path, tensors: Tensors, key: str) -> Tensor:
    """The tensor `key`; UserError if there is none."""
    if key not in tensors:
        raise UserError(f"{path}: {key}: missing", "is it a Transformer-XL of the released code?")
    return tensors[key]


def _all(tensors: Tensors, pattern: str) -> list[Tensor]:
    """The tensors named by the pattern with 0, 1, ..., up to the first that is missing."""
    names = takewhile(tensors.__contains__, map(pattern.format, count()))
    return [tensors[name] for name in names]


def _cutoffs(path: Path, sizes: list[int], tensors: Tensors) -> list[int]:
    if len(sizes) == 1 and "crit.cluster_weight" in tensors:
        tails = len(tensors["crit.cluster_weight"])
        raise UserError(
            f"{path}: crit.cluster_weight: {tails} tail clusters share one table, so the file does "
            "not tell where they begin",
            "save the whole model instead of its state dict",
        )
    return list(accumulate(sizes))[:-1]


def _div_val(path: Path, widths: list[int], tensors: Tensors, first: Tensor) -> int:
    """The smallest divisor that explains the widths; any other gives the same model."""
    projected = "word_emb.emb_projs.0" in tensors
    if len(widths) == 1 and not (projected and widths[0] == first.shape[1]):
        return 1
    for divisor in range(2, widths[0] + 1):
        if widths == [widths[0] // divisor**index for index in range(len(widths))]:
            return divisor
    raise UserError(
        f"{path}: {_TABLE}: tables have {widths} columns", "no div_val gives these widths"
    )


def _ties(tensors: Tensors, clusters: int) -> tuple[bool, ...]:
    """For each cluster, whether its softmax projection is the embedding's."""
    shared = _all(tensors, "word_emb.emb_projs.{}")

    def tied(cluster: int) -> bool:
        own = tensors.get(f"crit.out_projs.{cluster}")
        if not shared or own is None:
            return bool(shared)
        return torch.equal(own, shared[cluster if len(shared) > 1 else 0])

    return tuple(tied(cluster) for cluster in range(clusters))
