"""One token at a time: where the short way is taken, and that it is the long way's equal.

The buffer of keys and values holds the newest in order, however often it is moved.
"""

from typing import Any

import pytest
import torch

from tests.models.subjects import ATTENDING, Subject, small, text, transformer
from txlbench.config.base import AttentionSpan
from txlbench.errors import UserError
from txlbench.evaluation.invariants import stream_losses
from txlbench.models import kv_cache
from txlbench.models import transformer as transformer_module
from txlbench.models.kv_cache import KVCache


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the passes that take the short way."""
    taken: list[int] = []
    step = kv_cache.decode_step

    def counted(*given: Any) -> Any:
        taken.append(1)
        return step(*given)

    monkeypatch.setattr(kv_cache, "decode_step", counted)
    return taken


def read(model: Any, span: AttentionSpan, batch: int = 1) -> torch.Tensor:
    """Losses of 5 tokens at once and 20 one by one."""
    tokens = text(26, batch)
    state = model.evaluation_state(model.initial_state(batch, span))
    return stream_losses(model, tokens, [5, *[1] * 20], span, state)[0]


@pytest.mark.parametrize("subject", ATTENDING, ids=lambda s: s.name)
@pytest.mark.parametrize(
    "span",
    [
        AttentionSpan(mem_len=7),
        AttentionSpan(mem_len=7, same_length=True),
        AttentionSpan(mem_len=7, clamp_len=3),
    ],
)
def test_single_tokens_take_it_and_lose_nothing(
    subject: Subject, span: AttentionSpan, steps: list[int]
):
    model = subject.build()
    for batch in (1, 3):
        tokens = text(26, batch)
        plain = stream_losses(model, tokens, [5, *[1] * 20], span)[0]
        assert torch.allclose(read(model, span, batch), plain, rtol=0, atol=1e-10)
    # A plug-in that gives its scores whole goes the long way.
    assert len(steps) == (0 if subject.name == "key-decay" else 40)


@pytest.mark.parametrize("span", [AttentionSpan(mem_len=0), AttentionSpan(mem_len=6, stride=1)])
def test_other_ways_of_remembering_go_the_long_way(span: AttentionSpan, steps: list[int]):
    read(transformer("xl"), span)
    assert not steps


def test_so_do_watched_passes_forgetting_streams_and_16_bits(steps: list[int]):
    model, span, token = transformer("xl").float(), AttentionSpan(mem_len=6), text(1)
    state = model.evaluation_state(model.initial_state(1, span))
    _, state = model(token, state)
    assert len(steps) == 1
    model(token, state.clone(), lambda *_: None)
    model(token, state.clone().reset(torch.tensor([True])))
    with torch.autocast("cpu", torch.bfloat16):
        model(token, model.evaluation_state(model.initial_state(1, span)))
    assert len(steps) == 1


def numbered(first: int, count: int) -> torch.Tensor:
    """Keys and values [2, H, B, T, K] that carry the number of their token."""
    return torch.arange(first, first + count).float().view(1, 1, 1, -1, 1).expand(2, 1, 2, -1, 1)


def empty(span: AttentionSpan) -> KVCache:
    return KVCache(torch.empty(2, 2, 1, 2, 0, 1), span)


@pytest.mark.parametrize("mem_len", [0, 1, 5, 12, 1000])
@pytest.mark.parametrize("stride", [None, 2])
def test_a_segment_sees_the_newest_in_order(mem_len: int, stride: int | None):
    cache, remembered, token = empty(AttentionSpan(mem_len=mem_len, stride=stride)), [], 0
    for queries in [3, 3, 1, 7, 2, 1, 1, 5] * 5:
        cache.make_room(queries, torch.float32)
        here = list(range(token, token + queries))
        for layer in range(2):
            seen, _ = cache.write(layer, *numbered(token, queries))
            assert seen[0, 1, :, 0].tolist() == remembered + here
        cache.advance(queries)
        kept = here if stride is None else here[:stride]
        token += len(kept)
        remembered = (remembered + kept)[-mem_len:] if mem_len else []
        assert cache.length == len(remembered)


def test_the_buffer_stays_within_twice_what_a_segment_needs():
    cache = empty(AttentionSpan(mem_len=10))
    for _ in range(200):
        cache.make_room(3, torch.float32)
        cache.write(0, *numbered(0, 3))
        cache.advance(3)
    assert cache.states_N2HBCK.shape[4] <= 2 * (10 + 3)


def test_moves_are_few():
    cache, moves = empty(AttentionSpan(mem_len=100)), 0
    for _ in range(1000):
        before = cache.start
        cache.make_room(1, torch.float32)
        moves += cache.start < before
        cache.advance(1)
    assert 0 < moves <= 10


def test_a_clone_goes_on_by_itself():
    model, tokens, span = transformer("xl"), text(25, batch=2), AttentionSpan(mem_len=6)
    state = model.evaluation_state(model.initial_state(2, span))
    _, state = stream_losses(model, tokens, [4, 4, 4], span, state)
    copy = state.clone()
    expected, _ = stream_losses(model, tokens[:, 12:], [4, 4], span, state)
    stream_losses(model, tokens.flip(1), [4, 4, 4], span, state)
    got, _ = stream_losses(model, tokens[:, 12:], [4, 4], span, copy)
    assert torch.equal(expected, got)


@pytest.mark.parametrize("encoding", ["xl", "shaw"])
def test_positions_are_projected_once_for_many_passes(encoding: str):
    model, tokens, span, made = transformer(encoding), text(65), AttentionSpan(mem_len=20), []
    prepare = model.encoding.prepare
    model.encoding.prepare = lambda keys, *rest: (made.append(keys), prepare(keys, *rest))[1]
    state = model.evaluation_state(model.initial_state(1, span))
    stream_losses(model, tokens, [1] * 64, span, state)
    assert made == [1, 4, 10, 22]


def test_a_cache_serves_the_number_format_that_is_computed_in():
    model, tokens, span = transformer("xl").float(), text(25, batch=2), AttentionSpan(mem_len=6)
    state = model.evaluation_state(model.initial_state(2, span))
    _, state = stream_losses(model, tokens, [4, 4], span, state)
    with torch.autocast("cpu", torch.bfloat16):
        _, state = stream_losses(model, tokens[:, 8:], [4], span, state)
        assert state.states_N2HBCK.dtype == torch.bfloat16
    got, _ = stream_losses(model, tokens[:, 12:], [4], span, state)
    expected, _ = stream_losses(model, tokens, [4] * 4, span)
    assert state.states_N2HBCK.dtype == torch.float32
    assert (got - expected[:, 12:]).abs().mean() < 0.05


def test_training_does_not_use_it():
    model = transformer("xl").train()
    state = model.evaluation_state(model.initial_state(1, AttentionSpan(mem_len=4)))
    with pytest.raises(AssertionError, match="dropout"):
        model(text(4), state)


@pytest.mark.parametrize("own", [False, True], ids=["in float32", "in its units"])
@pytest.mark.parametrize(("precision", "bound"), [("fp16", 0.002), ("bf16", 0.016)])
@pytest.mark.parametrize("subject", ATTENDING, ids=lambda s: s.name)
def test_keys_and_values_of_16_bits_change_losses_little(
    subject: Subject, precision: str, bound: float, own: bool, monkeypatch: pytest.MonkeyPatch
):
    """Mean absolute change in nats a token, of random weights that are larger than trained ones."""
    monkeypatch.setattr(kv_cache, "multiplies_bf16", lambda _: own)
    monkeypatch.setattr(transformer_module, "multiplies_bf16", lambda _: own)
    span = AttentionSpan(mem_len=7)
    for batch in (1, 10):
        model = subject.build().float()
        exact = read(model, span, batch)
        model.keep_in(precision)
        state = model.evaluation_state(model.initial_state(batch, span))
        got, state = stream_losses(model, text(26, batch), [5, *[1] * 20], span, state)
        assert (
            state.states_N2HBCK.dtype == {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
        )
        assert got.dtype == torch.float32
        difference = (got - exact).abs().mean()
        assert 0 < difference < bound * (4 if own and precision == "bf16" else 1)


def test_keys_that_are_not_kept_are_refused():
    for model in (small(kind="lstm"), transformer("xl", memory="shift")):
        with pytest.raises(UserError, match="--precision fp16: is of keys and values"):
            model.keep_in("fp16")
    model, span = transformer("xl"), AttentionSpan(mem_len=6, sinks=1)
    model.keep_in("fp16")
    with pytest.raises(UserError, match="beside sinks"):
        model.evaluation_state(model.initial_state(1, span))
