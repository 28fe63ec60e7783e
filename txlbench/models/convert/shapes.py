"""The configuration that shapes of official weights tell, for sources that bring no other."""

from collections.abc import Sequence
from itertools import accumulate, count, takewhile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from txlbench.errors import UserError
from txlbench.models.convert.official import Tensors

_TABLE = "word_emb.emb_layers.0.weight"


def inferred(
    path: Path, tensors: Tensors, untie_r: bool, cutoffs: Sequence[int] | None = None
) -> tuple[dict[str, Any], int]:
    """Settings of the model and its vocabulary size.

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
    """The tensors of pattern 0, 1, ..., as far as they go."""
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
