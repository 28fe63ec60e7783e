"""Builds a model from its configuration, with initial weights as in the official PyTorch code, and
checks stored weights against the configuration before any memory is taken."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from txlbench.config.catalogue import load_class
from txlbench.config.model import ModelConfig
from txlbench.config.plugins import naming_plugin
from txlbench.errors import UserError
from txlbench.models.interface import LanguageModel


@runtime_checkable
class DrawsOwnWeights(Protocol):
    """A module with weights that start otherwise than `initialise` has it."""

    def initialise(self) -> None:
        """Draws them, after all others and without gradient."""


RECURRENT_WEIGHTS = ("w_ih", "w_hh", "b_ih", "b_hh", "w_gates", "b_gates")


def initialise(model: nn.Module, config: ModelConfig) -> None:
    """Draws every weight: N(0, init_std), with these exceptions.

    Projections of embedding and softmax N(0, proj_init_std); layer-norm weights N(1, init_std);
    biases of linear maps, norms, softmax, clusters and distances 0; recurrent layers
    U(-1/sqrt(d_model), 1/sqrt(d_model)), as PyTorch's; and what a module draws itself.
    """
    bound = config.d_model**-0.5
    norms = {
        f"{name}.weight"
        for name, part in model.named_modules()
        if isinstance(part, nn.LayerNorm | nn.RMSNorm)
    }
    for name, parameter in model.named_parameters():
        leaf = name.rsplit(".", 1)[-1]
        if leaf in ("bias", "cluster_bias", "distance_bias"):
            nn.init.zeros_(parameter)
        elif leaf in RECURRENT_WEIGHTS:
            nn.init.uniform_(parameter, -bound, bound)
        elif name in norms:
            nn.init.normal_(parameter, 1.0, config.init_std)
        elif "projections" in name:
            nn.init.normal_(parameter, 0.0, config.proj_init_std)
        else:
            nn.init.normal_(parameter, 0.0, config.init_std)
    for part in model.modules():
        if isinstance(part, DrawsOwnWeights):
            with torch.no_grad():
                part.initialise()


def build_model(config: ModelConfig, vocabulary_size: int) -> LanguageModel:
    """A model in training mode on the CPU; seed first, the weights are drawn here.

    Args:
        vocabulary_size: V, a fact of the corpus and not of the configuration.
    """
    model = _structure(config, vocabulary_size)
    if config.kind != "hf":  # its architecture has drawn them, in its own way
        with naming_plugin(config.name, config.plugin):
            initialise(model, config)
    return model


def _structure(config: ModelConfig, vocabulary_size: int) -> LanguageModel:
    """A model whose weights are still to be drawn; UserError for a plug-in's that fails."""
    entry = config.kind_entry
    with naming_plugin(entry.target, entry.source):
        model = load_class(entry.target)(config, vocabulary_size)
        if not isinstance(model, LanguageModel):
            raise TypeError(f"not a subclass of {LanguageModel.__module__}.LanguageModel")
    return model


def weight_count(config: ModelConfig, vocabulary_size: int) -> int:
    """Weights of the model, shared ones once; it is laid out without memory for them."""
    with torch.device("meta"):
        built = _structure(config, vocabulary_size)
    return sum(weight.numel() for weight in built.parameters())


MOST_LAYERS = 10_000
"""More would take long to lay out, and no file holds their weights."""


def skeleton(path: Path, config: ModelConfig, vocabulary_size: int) -> dict[str, Tensor]:
    """The model's state dict with shapes and no content.

    Raises:
        UserError: naming `path`, for sizes that no model can have.
    """
    if config.n_layer > MOST_LAYERS:
        raise UserError(f"{path}: n_layer: {config.n_layer} found", f"at most {MOST_LAYERS}")
    try:
        with torch.device("meta"):
            return _structure(config, vocabulary_size).state_dict()
    except (RuntimeError, OverflowError, MemoryError, TypeError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise UserError(f"{path}: sizes that no model can have ({reason})", "mend them") from error


def check_weights(path: Path, config: ModelConfig, vocabulary_size: int, weights: Any) -> None:
    """Refuses (UserError naming `path`) what is not the model's state dict."""
    expected = skeleton(path, config, vocabulary_size)
    if not isinstance(weights, Mapping) or weights.keys() != expected.keys():
        raise UserError(f"{path}: its weights are not those of the run's model", "restore the file")
    for name, tensor in expected.items():
        found = weights[name]
        if not isinstance(found, Tensor) or found.shape != tensor.shape:
            shape = list(getattr(found, "shape", ()))
            raise UserError(
                f"{path}: {name}: shape {shape} found",
                f"the run's configuration asks for {list(tensor.shape)}",
            )
        if found.dtype != tensor.dtype:
            raise UserError(f"{path}: {name}: {found.dtype} found", f"it must be {tensor.dtype}")
        check_finite(path, name, found)


def check_finite(path: Path, name: str, weight: Tensor) -> None:
    """Refuses (UserError naming `path` and the weight) what a diverged training leaves."""
    if not weight.isfinite().all():
        raise UserError(
            f"{path}: {name}: NaN or infinite values found",
            "the training diverged; give an earlier checkpoint",
        )
