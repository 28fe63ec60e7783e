"""Hugging Face's Transformer-XL folders, read and written."""

from pathlib import Path

import torch
from torch import Tensor

from txlbench.errors import UserError
from txlbench.files import write_json
from txlbench.models.convert.converted import Converted
from txlbench.models.convert.hf_config import read_config, to_json
from txlbench.models.convert.official import from_official, to_official
from txlbench.models.convert.token_files import read_tokens, write_tokens
from txlbench.models.convert.weight_files import read_weights, write_weights

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
    config, vocabulary_size, view = read_config(directory / "config.json")
    path, tensors = read_weights(directory)
    if config.n_layer > len(tensors):  # before names are made of so many layers
        raise UserError(
            f"{directory / 'config.json'}: n_layer: {config.n_layer} found",
            f"{path.name} has {len(tensors)} tensors in all",
        )
    tensors = {name.removeprefix(PREFIX): tensor for name, tensor in tensors.items()}
    for bias in BIASES:
        _gather(path, tensors, bias, config.n_layer, config.untie_r)
    if reversed_clusters:
        reverse_clusters(tensors)
    weights = from_official(path, config, vocabulary_size, tensors)
    tokens = read_tokens(directory, vocabulary_size)
    return Converted(config, vocabulary_size, weights, view, tokens)


def write_hf(converted: Converted, directory: Path) -> None:
    """Writes a folder that transformers' `TransfoXLLMHeadModel.from_pretrained` loads.

    Raises:
        UserError: if the folder is not empty, or the class cannot express the model.
    """
    config = converted.config
    content = to_json(config, converted.vocabulary_size, converted.view)
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
    """Turns the rows of the tail clusters around, in place of the old ones.

    The released PyTorch code takes tail i from column -i of the head; the TensorFlow code, Hugging
    Face and this package take it from the i-th column after the head's tokens (erratum E21).
    """
    for name in ("crit.cluster_weight", "crit.cluster_bias"):
        if name in tensors:
            tensors[name] = tensors[name].flip(0)


def _gather(path: Path, tensors: dict[str, Tensor], bias: str, layers: int, untied: bool) -> None:
    """Makes `bias` [1 or N, H, K] of what stands in the folder for all layers or for each.

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
    """The opposite of `_gather`, in the names that Hugging Face saves."""
    owners = tensors.pop(bias)
    if not untied:
        tensors[bias] = owners[0].clone()
        return
    for layer, own in enumerate(owners):
        tensors[f"layers.{layer}.dec_attn.{bias}"] = own.clone()


def _prefixed(name: str) -> str:
    return name if name.startswith("crit.") else PREFIX + name
