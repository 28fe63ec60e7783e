"""Dropout has the rate asked for, keeps the expectation, and is drawn from the seeded source."""

import pytest
import torch

from tests.models.subjects import small, text, transformer
from txlbench import seeding
from txlbench.config.base import AttentionSpan
from txlbench.evaluation.invariants import stream_losses
from txlbench.models.dropout import Dropout, VariationalDropout, keep_mask

SIZE = 200_000


@pytest.mark.parametrize("rate", [0.0001, 0.1, 0.5, 0.9])
def test_the_rate_and_the_scale(rate: float):
    seeding.seed_everything(3)
    dropped = Dropout(rate)(torch.ones(SIZE))
    share = (dropped == 0).float().mean().item()
    assert abs(share - rate) < 5 * (rate * (1 - rate) / SIZE) ** 0.5
    kept = dropped[dropped != 0]
    assert kept.allclose(torch.tensor(1 / (1 - rate)))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_any_size_and_type(size: int, dtype: torch.dtype):
    mask = keep_mask(torch.empty(size, 3, dtype=dtype), 0.5)
    assert mask.shape == (size, 3)
    assert mask.dtype == dtype
    assert set(mask.flatten().tolist()) <= {0.0, 2.0}


def test_entries_are_independent():
    seeding.seed_everything(4)
    mask = keep_mask(torch.empty(SIZE), 0.5) - 1
    for lag in (1, 2, 3, 4, 8):
        assert (mask[lag:] * mask[:-lag]).mean().abs() < 5 / SIZE**0.5


def test_two_draws_differ_and_the_seed_repeats_them():
    seeding.seed_everything(5)
    first, second = keep_mask(torch.empty(64), 0.5), keep_mask(torch.empty(64), 0.5)
    seeding.seed_everything(5)
    assert torch.equal(keep_mask(torch.empty(64), 0.5), first)
    assert not torch.equal(first, second)


def test_nothing_is_dropped_or_drawn_in_evaluation_and_at_rate_0():
    values, before = torch.randn(9), seeding.capture()["bits"]
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0)(values) is values
    assert seeding.capture()["bits"] == before


def test_gradients_pass_where_values_do():
    values = torch.randn(100, requires_grad=True)
    dropped = Dropout(0.5)(values)
    dropped.sum().backward()
    assert torch.equal(values.grad, torch.where(dropped == 0, 0.0, 2.0))


def test_a_variational_mask_is_shared_by_all_tokens_and_not_by_streams():
    dropped = VariationalDropout(0.5)(torch.ones(3, 5, 64))
    assert torch.equal(dropped, dropped[:, :1].expand(-1, 5, -1))
    assert not torch.equal(dropped[0], dropped[1])
    assert set(dropped.flatten().tolist()) == {0.0, 2.0}


def test_a_word_is_dropped_wherever_it_stands():
    model, tokens = transformer("xl", dropoute=0.5).train(), text(40, batch=2)
    exact = model.eval().embedding(tokens)
    dropped = model.train().embedding(tokens)
    factor = dropped / exact
    assert torch.allclose(factor, factor[..., :1].expand_as(factor))
    by_word = [set(factor[tokens == word].flatten().round().tolist()) for word in tokens.unique()]
    assert all(len(factors) == 1 for factors in by_word)
    assert set.union(*by_word) == {0.0, 2.0}


def test_the_sites_of_awd_lstm():
    rates = {"dropout": 0.1, "dropoute": 0.2, "dropouti": 0.3, "dropouth": 0.4, "wdrop": 0.5}
    model = small(kind="lstm", n_layer=2, **rates).train()
    found = {name: part.rate for name, part in model.named_modules() if isinstance(part, Dropout)}
    assert found == {
        "embedding.word_dropout": 0.2,
        "dropout_input": 0.3,
        "dropout_hidden": 0.4,
        "dropout_output": 0.1,
        "layers.0.weight_drop": 0.5,
        "layers.1.weight_drop": 0.5,
    }


@pytest.mark.parametrize(
    "site",
    [
        "embedding.word_dropout",
        "dropout_input",
        "dropout_hidden",
        "dropout_output",
        "layers.1.weight_drop",
    ],
)
def test_each_site_of_awd_lstm_is_used(site: str):
    model, tokens, span = small(kind="lstm").train(), text(13), AttentionSpan(mem_len=1)
    exact, _ = stream_losses(model, tokens, [12], span)
    model.get_submodule(site).rate = 0.5
    dropped, _ = stream_losses(model, tokens, [12], span)
    assert not torch.equal(exact, dropped)


def test_every_site_of_the_official_code_drops():
    """Embedding, R, attention output, feed-forward hidden and output, last hidden states."""
    model = transformer("xl", n_layer=1, dropout=0.2, dropatt=0.3).train()
    parts = [(name, part) for name, part in model.named_modules() if isinstance(part, Dropout)]
    rates = {name: part.rate for name, part in parts if part.rate > 0}
    assert rates == {
        "dropout_input": 0.2,
        "encoding.dropout": 0.2,
        "blocks.0.attention.dropatt": 0.3,
        "blocks.0.attention_dropout": 0.2,
        "blocks.0.feed_forward.dropout_inner": 0.2,
        "blocks.0.feed_forward.dropout_outer": 0.2,
        "dropout_output": 0.2,
    }


@pytest.mark.parametrize(
    "site",
    [
        "dropout_input",
        "encoding.dropout",
        "blocks.0.attention.dropatt",
        "blocks.0.attention_dropout",
        "blocks.0.feed_forward.dropout_inner",
        "blocks.0.feed_forward.dropout_outer",
        "dropout_output",
    ],
)
def test_each_site_is_used(site: str):
    model = transformer("xl", n_layer=1).train()
    exact, _ = stream_losses(model, text(13), [12], AttentionSpan(mem_len=0))
    model.get_submodule(site).rate = 0.5
    dropped, _ = stream_losses(model, text(13), [12], AttentionSpan(mem_len=0))
    assert not torch.equal(exact, dropped)


def test_a_training_step_continues_after_capture_and_restore():
    model, tokens, span = (
        transformer("xl", dropout=0.3, dropatt=0.3).train(),
        text(9),
        AttentionSpan(mem_len=4),
    )
    seeding.seed_everything(6)
    stream_losses(model, tokens, [8], span)
    state = seeding.capture()
    expected, _ = stream_losses(model, tokens, [8], span)
    stream_losses(model, tokens, [8], span)
    seeding.restore(state)
    got, _ = stream_losses(model, tokens, [8], span)
    assert torch.equal(expected, got)


@pytest.mark.parametrize("part", [1, 11, 2**17])
@pytest.mark.parametrize("kind", [Dropout, VariationalDropout])
def test_a_relu_dropped_in_place_equals_one_after_the_other(
    kind: type[Dropout], part: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("txlbench.models.dropout.PART", part)
    given = torch.randn(4, 7, 5, dtype=torch.float64, requires_grad=True)
    weight, dropout = torch.rand_like(given), kind(0.4)
    results = []
    for at_once in (True, False):
        seeding.seed_everything(7)
        values = given * 2  # what may be written into
        dropped = (
            dropout.after_relu(values.flatten(0, 1), values.shape[:2])
            if at_once
            else dropout(values.relu())
        )
        results.append((dropped, *torch.autograd.grad((dropped * weight).sum(), given)))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-14)
