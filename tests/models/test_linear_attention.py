"""Both rules in chunks equal a loop over tokens, and transformers' gated delta rule."""

import pytest
import torch
from torch import Tensor

from txlbench.config.kinds import CHUNK
from txlbench.models.linear_attention import gated_delta_rule, gated_linear_attention

BATCH, HEADS, KEYS, VALUES = 2, 3, 4, 5
LENGTHS = [1, 2, 7, CHUNK, CHUNK + 1, 2 * CHUNK + 22]
TOLERANCE = {"rtol": 0, "atol": 1e-9}


def given(length: int, strong: float = 1.0) -> dict[str, Tensor]:
    """Inputs in float64; decays of all strengths, up to exp(-40 strong) at one token."""
    generator = torch.Generator().manual_seed(length)

    def drawn(*shape: int, uniform: bool = False) -> Tensor:
        draw = torch.rand if uniform else torch.randn
        return draw(BATCH, HEADS, *shape, generator=generator, dtype=torch.float64)

    key = drawn(length, KEYS)
    return {
        "query": drawn(length, KEYS),
        "key": key / key.norm(dim=-1, keepdim=True),
        "value": drawn(length, VALUES),
        "decay": -40 * strong * drawn(length, KEYS, uniform=True) ** 4,
        "beta": drawn(length, uniform=True),
        "state": drawn(KEYS, VALUES),
    }


def gla(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, state: Tensor, **_: Tensor):
    return gated_linear_attention(query, key, value, decay, state)


def delta(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor):
    return gated_delta_rule(query, key, value, decay[..., 0], beta, state)


def gla_loop(query: Tensor, key: Tensor, value: Tensor, decay: Tensor, state: Tensor, **_: Tensor):
    """S_t = diag(exp g_t) S_{t-1} + k_t v_t^T, o_t = S_t^T q_t, head by head."""
    read = torch.zeros_like(value)
    states = []
    for b in range(BATCH):
        for h in range(HEADS):
            matrix = state[b, h]
            for t in range(query.shape[2]):
                forgotten = torch.diag(decay[b, h, t].exp()) @ matrix
                matrix = forgotten + torch.outer(key[b, h, t], value[b, h, t])
                read[b, h, t] = matrix.T @ query[b, h, t]
            states.append(matrix)
    return read, torch.stack(states).view_as(state)


def delta_loop(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor
):
    """S_t = exp(g_t) (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T, head by head."""
    read = torch.zeros_like(value)
    states, unit = [], torch.eye(KEYS, dtype=key.dtype)
    for b in range(BATCH):
        for h in range(HEADS):
            matrix = state[b, h]
            for t in range(query.shape[2]):
                k, strength = key[b, h, t], beta[b, h, t]
                erased = (unit - strength * torch.outer(k, k)) @ matrix
                written = strength * torch.outer(k, value[b, h, t])
                matrix = decay[b, h, t, 0].exp() * erased + written
                read[b, h, t] = matrix.T @ query[b, h, t]
            states.append(matrix)
    return read, torch.stack(states).view_as(state)


RULES = {"gla": (gla, gla_loop), "gated delta": (delta, delta_loop)}
every_rule = pytest.mark.parametrize("rule", RULES)


@every_rule
@pytest.mark.parametrize("length", LENGTHS)
def test_chunks_equal_the_loop_over_tokens(rule: str, length: int):
    chunked, loop = RULES[rule]
    inputs = given(length)
    for got, expected in zip(chunked(**inputs), loop(**inputs), strict=True):
        torch.testing.assert_close(got, expected, **TOLERANCE)


@every_rule
@pytest.mark.parametrize("length", [1, CHUNK + 3])
def test_gradients_equal_the_loop_s(rule: str, length: int):
    inputs = {name: tensor.requires_grad_() for name, tensor in given(length).items()}
    gradients = []
    for each in RULES[rule]:
        read, state = each(**inputs)
        total = (read * read.detach().cos()).sum() + (state**2).sum()
        gradients.append(torch.autograd.grad(total, list(inputs.values()), allow_unused=True))
    for name, got, expected in zip(inputs, *gradients, strict=True):
        if got is None or expected is None:
            assert (rule, name) == ("gla", "beta")
        else:
            torch.testing.assert_close(got, expected, **TOLERANCE)


@every_rule
def test_strong_decays_neither_overflow_nor_lose_gradients_in_float32(rule: str):
    inputs = {
        name: tensor.float().requires_grad_() for name, tensor in given(150, strong=50).items()
    }
    assert inputs["decay"].sum(2).min() < -10_000
    read, state = RULES[rule][0](**inputs)
    (read.sum() + state.sum()).backward()
    for tensor in (read, state, *(each.grad for each in inputs.values() if each.grad is not None)):
        assert tensor.isfinite().all()


@pytest.mark.parametrize("length", LENGTHS)
def test_the_delta_rule_is_transformers(length: int):
    """Its recurrent and its chunked form, which compute in float32 and scale queries."""
    module = pytest.importorskip("transformers.models.qwen3_next.modeling_qwen3_next")
    inputs = given(length, strong=0.05)  # sums of stronger ones round to 1e-4 there
    read, state = delta(**inputs)
    moved = [inputs[name].transpose(1, 2) for name in ("query", "key", "value")]
    gates = [inputs["decay"][..., 0].transpose(1, 2), inputs["beta"].transpose(1, 2)]
    for form in (module.torch_recurrent_gated_delta_rule, module.torch_chunk_gated_delta_rule):
        theirs, last = form(*moved, *gates, initial_state=inputs["state"], output_final_state=True)
        expected = theirs.transpose(1, 2) * KEYS**0.5
        torch.testing.assert_close(read, expected, rtol=0, atol=2e-5)
        torch.testing.assert_close(state.float(), last.float(), rtol=0, atol=1e-5)
