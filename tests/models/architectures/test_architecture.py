"""Which architectures and keys are taken, and what is counted without weights."""

import sys

import pytest
import torch

from tests.models.architectures.tiny import TINY, tiny
from txlbench.config.catalogue import STATEFUL_ARCHITECTURES
from txlbench.config.counting import parameters, token_flops
from txlbench.config.model import ModelConfig
from txlbench.errors import UserError
from txlbench.models.architectures.architecture import architecture_config, architecture_sizes
from txlbench.models.factory import build_model

SIZE = 50


def refusal(model: ModelConfig) -> str:
    with pytest.raises(UserError) as raised:
        build_model(model, SIZE)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("name", TINY)
def test_sizes_without_weights_are_those_of_the_built_model(name):
    built = sum(weight.numel() for weight in build_model(tiny(name), SIZE).parameters())
    assert parameters(tiny(name), SIZE) == built
    assert tiny(name).depth == 2


def test_work_is_two_a_weight_that_is_multiplied():
    untied, tied = (tiny("llama", tie_word_embeddings=tie) for tie in (False, True))
    assert parameters(untied, SIZE) == parameters(tied, SIZE) + SIZE * 32
    assert token_flops(untied, SIZE, 8, 8) == token_flops(tied, SIZE, 8, 8)
    assert token_flops(tied, SIZE, 8, 8) == 2 * parameters(tied, SIZE)


def test_memory_takes_keys_and_values_of_every_layer():
    assert architecture_sizes(tiny("llama"), SIZE).cached == 2 * 2 * 16
    assert architecture_sizes(tiny("mamba2"), SIZE).cached == 0


def test_unknown_architectures_are_refused_with_the_nearest_name():
    unknown = ModelConfig(kind="hf", architecture="lama", config={})
    assert "'lama' found, which transformers does not know; did you mean 'llama'?" in refusal(
        unknown
    )
    encoder = ModelConfig(kind="hf", architecture="t5", config={})
    assert "'t5' found, which is no causal language model" in refusal(encoder)


def test_unknown_keys_are_refused_with_the_nearest_name():
    found = refusal(tiny("llama", hidden_sise=3))
    assert found.startswith(
        "model.config.hidden_sise: unknown key of llama; did you mean 'hidden_s"
    )
    assert "unknown key" in refusal(tiny("llama", auto_map={"AutoModelForCausalLM": "x.Y"}))


def test_keys_that_follow_from_the_corpus_are_refused():
    assert "model.config.vocab_size: follows from the corpus" in refusal(
        tiny("llama", vocab_size=9)
    )
    assert "model.config.pad_token_id" in refusal(tiny("gemma2", pad_token_id=0))


def test_values_that_the_architecture_refuses_are_one_line():
    assert "expected int, got str" in refusal(tiny("llama", hidden_size="wide"))
    assert "not a multiple of the number of attention heads" in refusal(
        tiny("llama", hidden_size=33)
    )


def test_no_token_of_the_corpus_is_taken_for_padding():
    """The embedding of a padding token would get no gradient: Gemma's is token 0 by default."""
    model = build_model(tiny("gemma2"), SIZE)
    assert model.module.get_input_embeddings().padding_idx is None
    assert architecture_config(tiny("gemma2"), SIZE).pad_token_id is None


def test_weights_follow_from_the_seed():
    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.cat([w.flatten() for w in build_model(tiny("mamba"), SIZE).parameters()])

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_without_transformers_the_extra_is_named(monkeypatch):
    for module in ("transformers", "transformers.utils"):
        monkeypatch.setitem(sys.modules, module, None)
    model = tiny("llama", rms_norm_eps=2e-6)  # not counted before
    with pytest.raises(UserError, match=r"pip install 'txlbench\[hf\]'"):
        parameters(model, SIZE)


@pytest.mark.full
def test_every_stateful_architecture_is_known_for_it():
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    stateful = {
        config.model_type
        for config, model in MODEL_FOR_CAUSAL_LM_MAPPING.items()
        if getattr(model, "_is_stateful", False) and "vocab_size" in config.__dataclass_fields__
    }
    assert "mamba" in stateful
    assert stateful <= STATEFUL_ARCHITECTURES
