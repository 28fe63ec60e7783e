"""The released TensorFlow code's checkpoints, by the names of its variables.

Kernels and projections stand there as [in, out], so they are transposed. Layer norms have an
epsilon of 1e-12 there and 1e-5 here, as in the released PyTorch code. `same_length` sees one key
more there: evaluate with mem_len + 1 to see the same keys (erratum E17).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate, count, takewhile
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from txlbench.errors import UserError
from txlbench.models.convert.converted import Converted, model_config
from txlbench.models.convert.official import from_official
from txlbench.models.convert.shapes import inferred
from txlbench.models.convert.tensor_bundle import TensorBundle
from txlbench.records.npz_members import open_npz

SCOPE = "transformer"
LAYER_NAMES = {
    "rel_attn/qkv/kernel": "dec_attn.qkv_net.weight",
    "rel_attn/r/kernel": "dec_attn.r_net.weight",
    "rel_attn/o/kernel": "dec_attn.o_net.weight",
    "rel_attn/LayerNorm/gamma": "dec_attn.layer_norm.weight",
    "rel_attn/LayerNorm/beta": "dec_attn.layer_norm.bias",
    "ff/layer_1/kernel": "pos_ff.CoreNet.0.weight",
    "ff/layer_1/bias": "pos_ff.CoreNet.0.bias",
    "ff/layer_2/kernel": "pos_ff.CoreNet.3.weight",
    "ff/layer_2/bias": "pos_ff.CoreNet.3.bias",
    "ff/LayerNorm/gamma": "pos_ff.layer_norm.weight",
    "ff/LayerNorm/beta": "pos_ff.layer_norm.bias",
}
NOTES = (
    "dropout and dropatt (taken as 0)",
    "mem_len, tgt_len, clamp_len and same_length",
)


class Variables:
    """The variables of a checkpoint, read when asked for."""

    def __init__(self, path: Path, read: Mapping[str, Callable[[], NDArray[Any]]]) -> None:
        self.path, self._read = path, read

    def __contains__(self, name: str) -> bool:
        return f"{SCOPE}/{name}" in self._read

    def __getitem__(self, name: str) -> Tensor:
        """The variable, matrices of layers and projections as [out, in]; UserError if missing."""
        if name not in self:
            raise UserError(f"{self.path}: {SCOPE}/{name}: missing", "is it a Transformer-XL?")
        try:
            tensor = torch.from_numpy(self._read[f"{SCOPE}/{name}"]())
        except (ValueError, TypeError, OSError) as error:
            raise UserError(
                f"{self.path}: {SCOPE}/{name}: not an array of numbers ({error})", "write it again"
            ) from error
        transposed = name.rsplit("/", 1)[-1] in ("kernel", "proj", "proj_W")
        return tensor.T.contiguous() if transposed else tensor

    def numbered(self, pattern: str) -> list[str]:
        """The names of pattern 0, 1, ..., as far as they go."""
        return list(takewhile(self.__contains__, map(pattern.format, count())))


def read_tf(prefix: Path) -> Converted:
    """Reads a checkpoint, or an `.npz` of its variables by their names.

    Args:
        prefix: the checkpoint's path without `.index`, or the path of the `.npz`.

    Raises:
        UserError: naming file and variable, for what is missing or damaged.
    """
    variables = _npz(prefix) if prefix.suffix == ".npz" else _bundle(prefix)
    tensors = dict(_layers(variables))
    cutoffs = _clusters(variables, tensors)
    untied = variables["r_w_bias"].dim() == 3
    for bias in ("r_w_bias", "r_r_bias"):
        tensors[bias] = variables[bias] if untied else variables[bias][None]
    settings, vocabulary_size = inferred(variables.path, tensors, untied, cutoffs)
    config = model_config(variables.path, {**settings, "dropout": 0.0, "dropatt": 0.0})
    weights = from_official(variables.path, config, vocabulary_size, tensors)
    return Converted(config, vocabulary_size, weights, notes=NOTES)


def _bundle(prefix: Path) -> Variables:
    bundle = TensorBundle(prefix)
    return Variables(bundle.index, {name: partial(bundle.read, name) for name in bundle.entries})


def _npz(path: Path) -> Variables:
    """Variables of an .npz, each held against what the file says of it before it is read."""
    arrays: dict[str, NDArray[Any]] = {}
    with open_npz(path) as members:
        for name in members.names:
            members.header(name)
            arrays[name] = members.read(name)
    return Variables(path, {name: partial(arrays.__getitem__, name) for name in arrays})


def _layers(variables: Variables) -> Iterator[tuple[str, Tensor]]:
    for layer in range(len(variables.numbered("layer_{}/rel_attn/qkv/kernel"))):
        for theirs, official in LAYER_NAMES.items():
            yield f"layers.{layer}.{official}", variables[f"layer_{layer}/{theirs}"]


def _clusters(variables: Variables, tensors: dict[str, Tensor]) -> list[int]:
    """Adds embedding and softmax to `tensors`; returns the cutoffs."""
    names = variables.numbered("adaptive_softmax/cutoff_{}/b")
    biases = [variables[name] for name in names or ["adaptive_softmax/bias"]]
    single = "adaptive_embed/lookup_table" in variables
    for table, bias in enumerate([torch.cat(biases)] if single else biases):
        place = "adaptive_embed" if single else f"adaptive_embed/cutoff_{table}"
        tensors[f"crit.out_layers.{table}.bias"] = bias
        tensors[f"word_emb.emb_layers.{table}.weight"] = variables[f"{place}/lookup_table"]
        if f"{place}/proj_W" in variables:
            tensors[f"word_emb.emb_projs.{table}"] = variables[f"{place}/proj_W"]
    for cluster in range(len(biases)):
        own = f"adaptive_softmax/cutoff_{cluster}/proj"
        if own in variables:
            tensors[f"crit.out_projs.{cluster}"] = variables[own]
    if names[1:]:
        tensors["crit.cluster_weight"] = variables["adaptive_softmax/cutoff_0/cluster_W"]
        tensors["crit.cluster_bias"] = variables["adaptive_softmax/cutoff_0/cluster_b"]
    if not single:
        _add_identity(tensors)
    return list(accumulate(map(len, biases)))[:-1]


def _add_identity(tensors: dict[str, Tensor]) -> None:
    """Gives the head cluster the projection that the code leaves out where it needs none.

    With `proj_same_dim` off, as in the published lm1b model, a cluster as wide as the model is
    not projected. The identity, shared by embedding and softmax, changes no number.
    """
    if "word_emb.emb_projs.0" not in tensors:
        width = tensors["word_emb.emb_layers.0.weight"].shape[1]
        tensors["word_emb.emb_projs.0"] = torch.eye(width)
