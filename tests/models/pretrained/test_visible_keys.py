"""Sliding windows and sinks of pretrained models: equal to a loop whose cache drops hidden keys."""

import inspect

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from tests.models.pretrained.architectures import save_model
from txlbench.errors import UserError
from txlbench.models.pretrained.causal_lm import CACHES
from txlbench.models.pretrained.pretrained_model import open_folder
from txlbench.models.pretrained.visible_keys import VisibleKeys

CPU = torch.device("cpu")
T = 25
OWN = 8
"""The sliding window of the tiny Gemma 2 and Mistral."""
FURTHER = {"mistral", "cohere", "granite"}


def tokens():
    return torch.randint(256, (1, T), generator=torch.Generator().manual_seed(5))


def opened(kind, folder, precision="fp32", **options):
    return open_folder("hf:it", save_model(kind, folder, **options)).load(CPU, precision)


def windows_of(network):
    """The sliding window of each layer; the whole text for a layer without."""
    config = network.config
    usual = "sliding_attention" if config.model_type == "mistral" else "full_attention"
    types = getattr(config, "layer_types", None) or [usual] * config.num_hidden_layers
    return [OWN if kind == "sliding_attention" else T for kind in types]


def read_with_evictions(model, fed_T, nearest, sinks):
    """Logits [T, V] of a loop that feeds single tokens and evicts the keys that the next one must
    not see, layer by layer; each token has its place in the text as position."""
    network, cache, rows = model.network, DynamicCache(), []
    name = next(each for each in CACHES if each in inspect.signature(network.forward).parameters)
    kept = [[] for _ in windows_of(network)]
    for place, token in enumerate(fed_T.tolist()):
        for held, window, layer in zip(kept, windows_of(network), cache.layers, strict=False):
            seen = [
                number
                for number, key in enumerate(held)
                if (place - key < nearest or key < sinks) and place - key < window
            ]
            layer.keys, layer.values = layer.keys[:, :, seen], layer.values[:, :, seen]
            held[:] = [held[number] for number in seen]
        given = {name: cache, "position_ids": torch.tensor([[place]])}
        if len(set(windows_of(network))) > 1:  # what is left is all to be seen
            types = zip(network.config.layer_types, kept, strict=True)
            given["attention_mask"] = {
                kind: torch.zeros(1, 1, 1, len(held) + 1) for kind, held in types
            }
        output = network(input_ids=torch.tensor([[token]]), use_cache=True, **given)
        rows.append(output.logits[0, -1])
        for held in kept:
            held.append(place)
    return torch.stack(rows)


@pytest.mark.parametrize(("nearest", "sinks"), [(4, 0), (4, 3), (12, 2)])
@pytest.mark.parametrize(
    ("kind", "bos"),
    [
        *(
            pytest.param(kind, False, marks=[pytest.mark.full] if kind in FURTHER else [])
            for kind in ("llama", "gpt2", "gpt_neox", "gemma2", "mistral", "cohere", "granite")
        ),
        ("llama", True),
    ],
)
def test_losses_are_those_of_a_cache_that_drops_hidden_keys(kind, bos, nearest, sinks, tmp_path):
    model, given = opened(kind, tmp_path, bos=bos), tokens()
    losses = model.seeing(VisibleKeys(nearest, sinks)).token_losses(given)[0]
    fed = torch.cat([torch.tensor([256]), given[0]]) if bos else given[0]
    with torch.no_grad():
        logits = read_with_evictions(model, fed[:-1], nearest, sinks)[int(bos) :]
    expected = -logits.log_softmax(-1).gather(1, given[0, 1:, None])[:, 0]
    torch.testing.assert_close(losses, expected, atol=1e-5, rtol=0)
    if nearest < max(windows_of(model.network)):
        assert (losses - model.token_losses(given)[0]).abs().max() > 1e-2


@pytest.mark.parametrize(("kind", "depth"), [("llama", "num_hidden_layers"), ("gpt2", "n_layer")])
def test_one_layer_sees_its_nearest_tokens_as_if_fed_alone(kind, depth, tmp_path):
    model, given = opened(kind, tmp_path, **{depth: 1}), tokens()
    losses = model.seeing(VisibleKeys(4)).token_losses(given)[0]
    for last in range(3, T - 1):
        places = torch.arange(last - 3, last + 1)[None]
        logits = model.network(input_ids=given[:, places[0]], position_ids=places).logits[0, -1]
        alone = -logits.log_softmax(-1)[given[0, last + 1]]
        assert losses[last].item() == pytest.approx(alone.item(), abs=1e-5)


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_one_window_gives_all_contexts_and_rows_do_not_matter(kind, tmp_path):
    model = opened(kind, tmp_path).seeing(VisibleKeys(5, 2))
    given = torch.cat([tokens(), tokens().flip(1)])
    losses = model.token_losses(given)
    for context in (1, 7, 20):
        alone = model.token_losses(given[1:, : context + 1])[0, -1]
        torch.testing.assert_close(losses[1, context - 1], alone, atol=1e-5, rtol=0)
    some = model.at(np.array([3, 9])).token_losses(given)[:, [3, 9]]
    torch.testing.assert_close(some, losses[:, [3, 9]], atol=1e-5, rtol=0)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "gpt_neox", "gemma2"])
def test_models_that_keep_to_a_mask_pass_the_check(kind, precision, tmp_path):
    model = opened(kind, tmp_path, precision, bos=True)
    model.check_visible_keys(tokens()[0], "hf:it")


@pytest.mark.parametrize("kind", ["mamba", "qwen3_next", "jamba", "bloom"])
def test_models_that_no_mask_reaches_are_refused(kind, tmp_path):
    source = open_folder("hf:it", save_model(kind, tmp_path))
    assert not source.takes_attention_length
    with pytest.raises(UserError, match="--attention-length: is not to be chosen of hf:it: it tak"):
        source.load(CPU).check_visible_keys(tokens()[0], "hf:it")


class Changed(torch.nn.Module):
    """A network that is given another mask than it was called with."""

    def __init__(self, network, change):
        super().__init__()
        self.network, self.change, self.config = network, change, network.config

    def forward(self, input_ids, use_cache, attention_mask=None, position_ids=None):
        if attention_mask is not None:
            attention_mask = self.change(attention_mask)
        return self.network(input_ids=input_ids, use_cache=use_cache, attention_mask=attention_mask)


def without_sight_of_the_first(mask):
    hidden = mask.clone()
    hidden[:, :, 3:, 0] = -torch.inf
    return hidden


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda mask: None, "queries see tokens that the mask hides"),
        (without_sight_of_the_first, "a mask of all keys changes its losses"),
    ],
)
def test_a_model_that_ignores_or_changes_a_mask_is_refused(change, said, tmp_path):
    model = opened("llama", tmp_path)
    with pytest.raises(UserError, match=said):
        type(model)(Changed(model.network, change)).check_visible_keys(tokens()[0], "hf:it")


def test_one_layer_that_ignores_the_mask_is_enough_to_refuse(tmp_path):
    model = opened("llama", tmp_path)
    attention = model.network.model.layers[1].self_attn
    usual = attention.forward
    attention.forward = lambda *args, **given: usual(*args, **{**given, "attention_mask": None})
    with pytest.raises(UserError, match="queries see tokens that the mask hides"):
        model.check_visible_keys(tokens()[0], "hf:it")
