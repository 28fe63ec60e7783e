"""What every model must keep, whatever its kind or encoding; see `subjects` for which those are."""

import pytest
import torch

from tests.models.subjects import (
    ATTENDING,
    FORGETTING,
    NOT_RELATIVE,
    RELATIVE,
    SUBJECTS,
    Subject,
    embedded_leaves,
    influence,
    text,
)
from txlbench.config.base import AttentionSpan
from txlbench.evaluation.invariants import stream_losses

every_model = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.name)
every_forgetting = pytest.mark.parametrize("subject", FORGETTING, ids=lambda s: s.name)
every_relative = pytest.mark.parametrize("subject", RELATIVE, ids=lambda s: s.name)
every_attending = pytest.mark.parametrize("subject", ATTENDING, ids=lambda s: s.name)

SPANS = {
    "no memory": AttentionSpan(mem_len=0),
    "memory": AttentionSpan(mem_len=4),
    "same length": AttentionSpan(mem_len=4, same_length=True),
    "half loss": AttentionSpan(mem_len=4, stride=3),
}
every_span = pytest.mark.parametrize("span", list(SPANS.values()), ids=list(SPANS))


# Causality


@every_model
@every_span
def test_gradients_reach_the_past_and_never_the_future(subject: Subject, span: AttentionSpan):
    model, tokens = subject.build(), text(13)
    _, state = model(tokens[:, :6], model.initial_state(1, span))
    with embedded_leaves(model) as leaves:
        hidden, _ = model(tokens[:, 6:12], state)
        losses = model.losses(hidden, tokens[:, 7:13])[0]
    for query, loss in enumerate(losses):
        (gradient,) = torch.autograd.grad(loss, leaves[0], retain_graph=True)
        touched = gradient[0].abs().amax(dim=-1)
        assert (touched[: query + 1] > 0).all()
        assert (touched[query + 1 :] == 0).all()


@every_model
@every_span
def test_a_later_token_never_changes_an_earlier_loss(subject: Subject, span: AttentionSpan):
    reach = influence(
        subject.build(),
        text(13),
        [5, 5, 2],
        AttentionSpan(mem_len=span.mem_len, clamp_len=None, same_length=span.same_length),
    )
    assert not reach.tril(-1).any()
    assert reach.diagonal().all()


# Memory


@every_model
@pytest.mark.parametrize("cuts", [[6], [2, 6]], ids=["first segment", "with memory"])
def test_the_old_state_stays_bit_for_bit(subject: Subject, cuts: list[int]):
    model, tokens, span = (
        subject.build(dropout=0.3, dropatt=0.3).train(),
        text(20),
        AttentionSpan(mem_len=5),
    )
    _, state = stream_losses(model, tokens, cuts, span)
    before = {name: tensor.clone() for name, tensor in state.tensors().items()}
    losses, _ = stream_losses(model, tokens[:, 8:], [4, 4], span, state)
    losses.sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
    assert state.tensors().keys() == before.keys()
    assert all(torch.equal(before[name], tensor) for name, tensor in state.tensors().items())


@every_model
def test_the_new_state_carries_no_gradient(subject: Subject):
    model = subject.build().train()
    _, state = model(text(6), model.initial_state(1, AttentionSpan(mem_len=4)))
    assert state.tensors()
    assert not any(tensor.requires_grad for tensor in state.tensors().values())


@every_model
@every_span
def test_the_new_state_holds_no_more_than_it_remembers(subject: Subject, span: AttentionSpan):
    """A part of a segment's states would keep the rest in memory and in checkpoints."""
    model = subject.build().train()
    _, state = stream_losses(model, text(19, batch=2), [6, 6, 6], span)
    for tensor in state.tensors().values():
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


@every_model
def test_a_state_survives_being_taken_apart_and_put_together(subject: Subject):
    model, tokens, span = subject.build(), text(13, batch=2), AttentionSpan(mem_len=4)
    _, state = stream_losses(model, tokens, [6], span)
    copied = {name: tensor.clone() for name, tensor in state.tensors().items()}
    restored = model.initial_state(2, span).replace(copied)
    expected, _ = stream_losses(model, tokens[:, 6:], [6], span, state)
    got, _ = stream_losses(model, tokens[:, 6:], [6], span, restored)
    assert restored.span == span
    assert torch.equal(expected, got)


@every_model
@pytest.mark.parametrize("cuts", [[1, 1, 1], [5, 5, 2]], ids=str)
def test_mem_len_0_equals_a_memory_cleared_at_every_segment(subject: Subject, cuts: list[int]):
    model, tokens = subject.build(), text(13, batch=2)
    got, _ = stream_losses(model, tokens, cuts, AttentionSpan(mem_len=0))
    start = 0
    for cut in cuts:
        fresh, _ = stream_losses(model, tokens[:, start:], [cut], AttentionSpan(mem_len=8))
        assert torch.equal(got[:, start : start + cut], fresh)
        start += cut


# Forgetting


@every_forgetting
@every_span
def test_a_stream_that_forgot_goes_on_as_one_that_starts_there(
    subject: Subject, span: AttentionSpan
):
    """Row 1 forgets after one segment, row 2 after two, row 0 never."""
    model, tokens = subject.build(), text(31, batch=3)
    state, parts = model.initial_state(3, span), []
    for row, start in ((None, 0), (1, 5), (2, 10)):
        if row is not None:
            state = state.reset(torch.arange(3) == row)
        losses, state = stream_losses(model, tokens[:, start:], [5], span, state)
        parts.append(losses)
    rest, _ = stream_losses(model, tokens[:, 15:], [5, 1, 8], span, state)
    got = torch.cat([*parts, rest], dim=1)
    for row, start in enumerate((0, 5, 10)):
        cuts = [5] * (3 - start // 5) + [5, 1, 8]
        fresh, _ = stream_losses(model, tokens[row : row + 1, start:], cuts, span)
        assert torch.allclose(got[row, start:], fresh[0], rtol=0, atol=1e-11)


@every_forgetting
def test_a_state_forgets_without_being_written_to_and_can_be_saved(subject: Subject):
    model, tokens, span = subject.build(), text(13, batch=2), AttentionSpan(mem_len=4)
    _, state = stream_losses(model, tokens, [6], span)
    before = {name: tensor.clone() for name, tensor in state.tensors().items()}
    forgetful = state.reset(torch.tensor([True, False]))
    forgetful = forgetful.reset(torch.tensor([False, False]))
    assert all(torch.equal(before[name], tensor) for name, tensor in state.tensors().items())
    restored = model.initial_state(2, span).replace(dict(forgetful.tensors()))
    expected, _ = stream_losses(model, tokens[:, 6:], [3, 3], span, forgetful)
    got, _ = stream_losses(model, tokens[:, 6:], [3, 3], span, restored)
    kept, _ = stream_losses(model, tokens[:, 6:], [3, 3], span, state)
    assert torch.equal(expected, got)
    assert torch.equal(expected[1], kept[1])
    assert not torch.allclose(expected[0], kept[0])


# Segments and one pass


@every_relative
@pytest.mark.parametrize("n_layer", [1, 3])
@pytest.mark.parametrize("cuts", [[6, 6], [1, 7, 4], [11, 1]], ids=str)
def test_segments_with_memory_that_covers_equal_one_pass(
    subject: Subject, n_layer: int, cuts: list[int]
):
    model, tokens = subject.build(n_layer=n_layer), text(13)
    whole, _ = stream_losses(model, tokens, [12], AttentionSpan(mem_len=0))
    parts, _ = stream_losses(model, tokens, cuts, AttentionSpan(mem_len=12))
    assert torch.allclose(whole, parts, rtol=0, atol=1e-11)


@every_relative
@pytest.mark.parametrize("n_layer", [1, 3])
def test_at_one_attention_length_it_does_not_matter_where_segments_are_cut(
    subject: Subject, n_layer: int
):
    model, tokens = subject.build(n_layer=n_layer), text(25)
    span = AttentionSpan(mem_len=5, same_length=True)
    whole, _ = stream_losses(model, tokens, [24], span)
    for cuts in ([12, 12], [3] * 8, [7, 1, 16]):
        parts, _ = stream_losses(model, tokens, cuts, span)
        assert torch.allclose(whole, parts, rtol=0, atol=1e-11)


@pytest.mark.parametrize("subject", NOT_RELATIVE, ids=lambda s: s.name)
def test_absolute_positions_make_segments_differ_from_one_pass(subject: Subject):
    model, tokens = subject.build(n_layer=1), text(13)
    whole, _ = stream_losses(model, tokens, [12], AttentionSpan(mem_len=0))
    parts, _ = stream_losses(model, tokens, [6, 6], AttentionSpan(mem_len=12))
    assert torch.allclose(whole[:, :6], parts[:, :6], rtol=0, atol=1e-11)
    assert ((whole - parts)[:, 6:].abs() > 1e-3).all()


# Attention reach


@every_attending
@pytest.mark.parametrize("attention_length", [1, 2, 4, 7])
@pytest.mark.parametrize("tgt_len", [1, 3, 6, 9])
def test_same_length_reaches_exactly_attention_length_keys_back(
    subject: Subject, attention_length: int, tgt_len: int
):
    model, span = (
        subject.build(n_layer=1),
        AttentionSpan(mem_len=attention_length, same_length=True),
    )
    cuts = [tgt_len] * (18 // tgt_len)
    length = sum(cuts)
    places = torch.arange(length)
    distance = places[None, :] - places[:, None]
    expected = (distance >= 0) & (distance < attention_length)
    assert torch.equal(influence(model, text(length + 1), cuts, span), expected)


@every_attending
@pytest.mark.parametrize(("tgt_len", "mem_len"), [(3, 5), (5, 3), (4, 4), (4, 0)])
def test_without_same_length_a_query_sees_memory_and_its_segment(
    subject: Subject, tgt_len: int, mem_len: int
):
    reach = influence(
        subject.build(n_layer=1),
        text(21),
        [tgt_len] * (20 // tgt_len),
        AttentionSpan(mem_len=mem_len),
    )
    for query in range(reach.shape[1]):
        oldest = max(0, query // tgt_len * tgt_len - mem_len)
        assert reach[:, query].nonzero().flatten().tolist() == list(range(oldest, query + 1))


@every_attending
@pytest.mark.parametrize("n_layer", [2, 3])
def test_reach_grows_by_attention_length_minus_one_a_layer(subject: Subject, n_layer: int):
    span = AttentionSpan(mem_len=4, same_length=True)
    reach = influence(subject.build(n_layer=n_layer), text(16), [4, 4, 4, 3], span)
    expected = list(range(14 - 3 * n_layer, 15))
    assert reach[:, 14].nonzero().flatten().tolist() == expected


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.clamps], ids=lambda s: s.name)
def test_clamp_len_makes_farther_distances_equal(subject: Subject):
    model, tokens = subject.build(n_layer=1), text(13)
    swapped = tokens.clone()
    swapped[:, [0, 5]] = tokens[:, [5, 0]]
    assert not torch.equal(tokens, swapped)

    def last_loss(given: torch.Tensor, clamp_len: int | None) -> torch.Tensor:
        losses, _ = stream_losses(
            model, given, [6, 6], AttentionSpan(mem_len=6, clamp_len=clamp_len)
        )
        return losses[0, -1]

    assert torch.allclose(last_loss(tokens, 6), last_loss(swapped, 6), rtol=0, atol=1e-12)
    assert (last_loss(tokens, 7) - last_loss(swapped, 7)).abs() > 1e-6
    assert (last_loss(tokens, None) - last_loss(swapped, None)).abs() > 1e-6


@every_attending
@pytest.mark.parametrize("tgt_len", [1, 7])
def test_same_length_with_a_memory_shorter_than_the_segment_is_finite(
    subject: Subject, tgt_len: int
):
    span = AttentionSpan(mem_len=2, same_length=True)
    losses, _ = stream_losses(subject.build(), text(22), [tgt_len] * (21 // tgt_len), span)
    assert losses.isfinite().all()


@every_attending
@every_span
def test_attention_that_is_watched_is_the_attention_that_is_computed(
    subject: Subject, span: AttentionSpan
):
    """However it is computed: fused, plain or beside cached keys and values."""
    model, tokens, seen = subject.build(), text(12, batch=2), []
    for state in (
        model.initial_state(2, span),
        model.evaluation_state(model.initial_state(2, span)),
    ):
        _, state = model(tokens[:, :6], state)
        copy = state.clone() if hasattr(state, "clone") else state
        seen += [model(tokens[:, 6:], state)[0], model(tokens[:, 6:], copy, lambda *_: None)[0]]
    assert all(torch.allclose(seen[0], other, rtol=0, atol=1e-11) for other in seen[1:])


# Batches, precision, probabilities


@every_model
def test_a_stream_alone_equals_the_stream_in_a_batch(subject: Subject):
    model, tokens, span = subject.build(), text(13, batch=3), AttentionSpan(mem_len=4)
    together, _ = stream_losses(model, tokens, [6, 6], span)
    for row in range(3):
        alone, _ = stream_losses(model, tokens[row : row + 1], [6, 6], span)
        assert torch.allclose(together[row], alone[0], rtol=0, atol=1e-12)


@every_model
def test_losses_are_the_log_probabilities_of_the_targets(subject: Subject):
    model, tokens = subject.build(), text(7, batch=2)
    hidden, _ = model(tokens[:, :6], model.initial_state(2, AttentionSpan(mem_len=4)))
    losses = model.losses(hidden, tokens[:, 1:])
    for place in range(6):
        log_probs = model.log_probs(hidden[:, place])
        picked = log_probs.gather(1, tokens[:, place + 1 : place + 2])[:, 0]
        assert torch.allclose(losses[:, place], -picked, rtol=0, atol=1e-12)
        assert torch.allclose(log_probs.exp().sum(dim=1), torch.ones(2).double())


@every_model
def test_bfloat16_autocast_stays_close_to_float32(subject: Subject):
    model, tokens, span = subject.build().float(), text(25, batch=4), AttentionSpan(mem_len=8)
    exact, _ = stream_losses(model, tokens, [8, 8, 8], span)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _ = stream_losses(model, tokens, [8, 8, 8], span)
    assert rounded.dtype == torch.float32
    assert 0 < (exact - rounded).abs().mean() < 0.02 * exact.mean()


@every_model
def test_evaluation_in_inference_mode_does_not_spoil_training(subject: Subject):
    model, tokens, span = subject.build(), text(13), AttentionSpan(mem_len=4)
    with torch.inference_mode():
        stream_losses(model, tokens, [6, 6], span)
    losses, state = stream_losses(model.train(), tokens, [6, 6], span)
    of_memory = model.memory_loss(state)
    (losses.sum() if of_memory is None else losses.sum() + of_memory).backward()
    trained = [parameter for parameter in model.parameters() if parameter.numel()]
    assert all(parameter.grad is not None for parameter in trained)
