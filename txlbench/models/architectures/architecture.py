"""Causal language models of Hugging Face transformers by model type, built with fresh weights.

The vocabulary is the corpus's. Nothing is downloaded, and no code but that of transformers is run.
"""

import dataclasses
import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from txlbench.config.model import ModelConfig
from txlbench.errors import UserError, suggestion
from txlbench.models.pretrained.pretrained_model import require_transformers

NOT_GIVEN = frozenset(
    {
        *("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"),
        *("use_cache", "_attn_implementation", "attn_implementation"),
    }
)
"""Keys of an architecture's configuration that follow from the corpus, or are set by this suite."""


def config_class(architecture: str) -> Any:
    """The configuration class of a causal language model.

    Raises:
        UserError: for a name that transformers does not know, or that is no such model.
    """
    require_transformers()
    from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING

    known = sorted(
        each.model_type for each in MODEL_FOR_CAUSAL_LM_MAPPING if "vocab_size" in _fields(each)
    )
    if architecture not in known:
        there = architecture in CONFIG_MAPPING
        what = "is no causal language model" if there else "transformers does not know"
        raise UserError(
            f"model.architecture: '{architecture}' found, which {what}",
            suggestion(architecture, known),
        )
    return CONFIG_MAPPING[architecture]


def _fields(config: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(config)}


def architecture_config(model: ModelConfig, vocabulary_size: int) -> Any:
    """The configuration of transformers that `model.architecture` and `model.config` stand for.

    Special tokens are none, as a corpus has none: the embedding of a padding token, for one, would
    not be trained, and its id is that of a token of the corpus.

    Raises:
        UserError: for keys and values that the architecture does not take.
    """
    assert model.architecture is not None
    of_architecture = config_class(model.architecture)
    from transformers import PretrainedConfig

    allowed = _fields(of_architecture) - _fields(PretrainedConfig) - NOT_GIVEN
    allowed |= set(of_architecture.attribute_map) - NOT_GIVEN
    for key in model.config:
        if key in NOT_GIVEN:
            raise UserError(f"model.config.{key}: follows from the corpus", "drop it")
        if key not in allowed:
            raise UserError(
                f"model.config.{key}: unknown key of {model.architecture}", suggestion(key, allowed)
            )
    special = {key: None for key in NOT_GIVEN & _fields(of_architecture) if key.endswith("_id")}
    try:
        config = of_architecture(vocab_size=vocabulary_size, **special, **model.config)
    except Exception as error:  # of many kinds, from validators of each architecture
        raise _refusal(model, error) from error
    return config


def _refusal(model: ModelConfig, error: Exception) -> UserError:
    """What transformers says of a configuration, in one line."""
    reason = " ".join(str(error).split()).split("Error: ", 1)[-1][:300] or type(error).__name__
    return UserError(
        f"model.config: {model.architecture} refuses it: {reason}", "mend model.config"
    )


def build_architecture(model: ModelConfig, vocabulary_size: int) -> Any:
    """The module of transformers in training mode, its weights as the architecture draws them.

    It is made on the default device: `meta` for sizes alone.

    Raises:
        UserError: for a configuration that no model can be built from.
    """
    config = architecture_config(model, vocabulary_size)
    from transformers import AutoModelForCausalLM

    try:
        return AutoModelForCausalLM.from_config(config, trust_remote_code=False).train()
    except MemoryError:
        raise
    except Exception as error:  # sizes that do not fit each other show in many ways
        raise _refusal(model, error) from error


@dataclass(frozen=True)
class ArchitectureSizes:
    """What is counted of an architecture without its weights.

    Attributes:
        parameters: weights, shared ones once.
        products: weights that a token is multiplied with: all but a table of embeddings that is
            not the softmax's too.
        n_layer: number of layers.
        cached: numbers that a token in memory takes, keys and values of all layers; 0 for a
            recurrent state, which does not grow.
    """

    parameters: int
    products: int
    n_layer: int
    cached: int


def architecture_sizes(model: ModelConfig, vocabulary_size: int) -> ArchitectureSizes:
    """The sizes of an architecture, from a module on the meta device."""
    return _sizes(json.dumps([model.architecture, model.config], sort_keys=True), vocabulary_size)


@cache
def _sizes(identity: str, vocabulary_size: int) -> ArchitectureSizes:
    architecture, keys = json.loads(identity)
    model = ModelConfig(kind="hf", architecture=architecture, config=keys)
    with torch.device("meta"):
        module = build_architecture(model, vocabulary_size)
    config = module.config.get_text_config(decoder=True)
    count = sum(weight.numel() for weight in module.parameters())
    table, head = module.get_input_embeddings(), module.get_output_embeddings()
    tied = head is not None and head.weight is table.weight
    heads = getattr(config, "num_attention_heads", 0) or 0
    cached = 0
    if heads and not model.is_recurrent:
        key_heads = getattr(config, "num_key_value_heads", None) or heads
        head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
        cached = 2 * config.num_hidden_layers * key_heads * head_size
    return ArchitectureSizes(
        parameters=count,
        products=count if tied else count - table.weight.numel(),
        n_layer=config.num_hidden_layers,
        cached=cached,
    )
