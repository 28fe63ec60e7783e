"""Losses of windows of pretrained models: equal to feeding each context alone."""

import numpy as np
import pytest
import torch
from transformers import RobertaConfig, XLNetConfig

from tests.models.pretrained.architectures import CONFIGS, SIZE, save_model
from txlbench.errors import UserError
from txlbench.models.pretrained import causal_lm
from txlbench.models.pretrained.pretrained_model import PretrainedModel, open_folder

CPU = torch.device("cpu")
T = 25
FURTHER = {"mistral", "cohere", "granite", "jamba"}


def tokens(rows: int = 2):
    return torch.randint(256, (rows, T), generator=torch.Generator().manual_seed(3))


def opened(kind, folder, precision="fp32", **options):
    return open_folder("hf:it", save_model(kind, folder, **options)).load(CPU, precision)


@pytest.mark.parametrize(
    ("kind", "bos"),
    [
        *(
            pytest.param(kind, False, marks=[pytest.mark.full] if kind in FURTHER else [])
            for kind in CONFIGS
        ),
        ("llama", True),
        ("mamba", True),
    ],
)
def test_one_window_gives_every_context_as_if_fed_alone(kind, bos, tmp_path):
    model, given = opened(kind, tmp_path, bos=bos), tokens()
    assert model.bos == (256 if bos else None)
    losses = model.token_losses(given)
    assert losses.std() > 0.1
    start = torch.full((2, 1), 256)
    for context in range(1, T):
        fed = given[:, :context]
        if bos:
            fed = torch.cat([start, fed], dim=1)
        logits = model.network(input_ids=fed, use_cache=False).logits[:, -1]
        alone = -logits.log_softmax(-1).gather(1, given[:, context : context + 1])[:, 0]
        torch.testing.assert_close(losses[:, context - 1], alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["llama", "gemma2", "cohere", "granite", "mamba"])
def test_losses_at_chosen_places_are_those_of_all(kind, tmp_path):
    model, given = opened(kind, tmp_path, bos=True), tokens()
    chosen = np.array([0, 5, 17])
    some, every = model.at(chosen).token_losses(given), model.token_losses(given)
    torch.testing.assert_close(some[:, chosen], every[:, chosen], atol=1e-5, rtol=0)
    assert some.isfinite().sum() == 2 * len(chosen)


class WithoutChoice(torch.nn.Module):
    """A network whose forward pass takes no `logits_to_keep`."""

    def __init__(self, network):
        super().__init__()
        self.network, self.config = network, network.config

    def forward(self, input_ids, use_cache):
        return self.network(input_ids=input_ids, use_cache=use_cache)


def test_a_network_that_computes_all_logits_gives_the_same(tmp_path):
    model, given = opened("llama", tmp_path).at(np.array([3, 9])), tokens()
    without = type(model)(WithoutChoice(model.network), None, model.columns)
    assert model.picks_logits
    assert not without.picks_logits
    found = without.token_losses(given)
    torch.testing.assert_close(found, model.token_losses(given), atol=1e-5, rtol=0, equal_nan=True)
    assert without.windows_at_once(64, 2**16, CPU) < model.windows_at_once(64, 2**16, CPU)


def test_fewer_windows_are_read_at_once_where_a_scan_holds_the_states_of_all_tokens(
    tmp_path, monkeypatch
):
    scanning, attending = opened("mamba", tmp_path / "a"), opened("llama", tmp_path / "b")
    config = scanning.network.config
    each = 4 * config.intermediate_size * config.state_size
    monkeypatch.setattr(causal_lm, "SCANNED", 3 * 64 * each)
    assert scanning.windows_at_once(64, 100, CPU) == 3
    assert scanning.windows_at_once(500, 100, CPU) == 1
    assert attending.windows_at_once(64, 100, CPU) == 16


@pytest.mark.parametrize("kind", ["llama", "mamba"])
def test_bf16_differs_by_rounding(kind, tmp_path):
    given = tokens()
    exact = opened(kind, tmp_path / "a").token_losses(given)
    rounded = opened(kind, tmp_path / "b", "bf16")
    assert rounded.dtype_name == "bf16"
    difference = (rounded.token_losses(given) - exact).abs()
    assert rounded.token_losses(given).dtype == torch.float32
    assert 1e-4 < difference.mean() < 0.1


def test_a_model_that_looks_ahead_is_refused(tmp_path):
    model = opened("llama", tmp_path)
    assert model.check_one_pass(tokens()[0], "hf:it") < 1e-5
    for layer in model.network.model.layers:
        layer.self_attn.is_causal = False
    with pytest.raises(UserError, match="one window does not give all contexts"):
        model.check_one_pass(tokens()[0], "hf:it")


@pytest.mark.parametrize(
    ("kind", "positions"), [("llama", 64), ("gpt2", 64), ("mamba", None), ("bloom", None)]
)
def test_positions_and_sizes_are_known_without_weights(kind, positions, tmp_path):
    source = open_folder("hf:it", save_model(kind, tmp_path))
    assert source.positions == positions
    assert source.vocabulary_size == SIZE
    network = source.load(CPU).network
    assert source.parameters == sum(weight.numel() for weight in network.parameters())


def test_rope_that_grows_ends_at_its_original_length(tmp_path):
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    source = open_folder(
        "hf:it",
        save_model("llama", tmp_path, rope_parameters=rope, max_position_embeddings=16),
    )
    assert source.positions == 16


@pytest.mark.parametrize(
    ("config", "positions"),
    [
        (RobertaConfig(max_position_embeddings=66, pad_token_id=1, is_decoder=True), 64),
        (XLNetConfig(), None),
    ],
)
def test_positions_are_those_that_can_be_used(config, positions, tmp_path):
    config.save_pretrained(tmp_path)
    assert PretrainedModel("hf:it", tmp_path).positions == positions
