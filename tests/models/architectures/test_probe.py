"""What an architecture has to show before it is trained."""

import pytest
import torch

from tests.models.architectures.tiny import WITH_MEMORY, tiny
from txlbench.config.train import TrainConfig
from txlbench.errors import UserError
from txlbench.models.architectures.probe import check_architecture, segments_equal_one_pass
from txlbench.models.factory import build_model

SIZE = 50


def refusal(name: str, recurrence: bool, **train: object) -> str:
    with pytest.raises(UserError) as raised:
        check_architecture(
            build_model(tiny(name), SIZE), SIZE, TrainConfig(recurrence=recurrence, **train)
        )
    return str(raised.value)


@pytest.mark.parametrize("name", WITH_MEMORY)
def test_these_can_carry_their_memory(name):
    check_architecture(build_model(tiny(name), SIZE), SIZE, TrainConfig())


@pytest.mark.parametrize("name", ["mamba", "jamba"])
def test_a_dropped_state_is_found_with_fresh_weights(name):
    """At initialisation it changes logits by a thousandth of their spread only."""
    model = build_model(tiny(name), SIZE)
    assert not segments_equal_one_pass(model, SIZE)
    assert "drops a part of it in segments of several tokens" in refusal(name, recurrence=True)
    check_architecture(model, SIZE, TrainConfig(recurrence=False))


def test_other_reasons_are_told():
    assert "forward pass takes no cache; set train.recurrence to false" in refusal("rwkv", True)
    assert "positions are absolute" in refusal("gpt2", True)
    assert "both attention and a recurrent state" in refusal("qwen3_next", True, memory_reset=0.1)


def test_a_model_that_looks_ahead_is_refused():
    assert "bert sees tokens that come later" in refusal("bert", recurrence=False)


def test_trying_changes_neither_the_model_nor_random_numbers():
    model = build_model(tiny("llama", attention_dropout=0.5), SIZE)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    torch.manual_seed(5)
    check_architecture(model, SIZE, TrainConfig())
    drawn = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(3))
    assert model.training
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
