"""Generation draws from what the plain pass over the whole text gives, and nothing else."""

from itertools import islice

import numpy as np
import pytest
import torch

from tests.models.subjects import SUBJECTS, VOCABULARY, small, text, transformer
from txlbench.config.base import AttentionSpan
from txlbench.errors import UserError
from txlbench.evaluation.generation import Sampling, generate, teacher_forced

LIKELIEST = Sampling(top_k=1)


def drawn(model, look, sampling=LIKELIEST, seed=1, prompt=None, count=12):
    ids = text(6)[0].numpy() if prompt is None else prompt
    return streams(model, ids[None], look, sampling, [seed], count)[0]


def streams(model, prompts, look, sampling, seeds, count):
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    tokens = islice(generate(model, prompts, *look, sampling, generators), count)
    return [list(stream) for stream in zip(*tokens, strict=True)]


def by_whole_passes(model, count, window=None):
    """The likeliest token, again and again, each by a plain pass over all that came before."""
    tokens = text(6)
    for _ in range(count):
        seen = tokens if window is None else tokens[:, -window:]
        hidden, _ = model(seen, model.initial_state(1, AttentionSpan(mem_len=0)))
        tokens = torch.cat([tokens, model.log_probs(hidden[:, -1]).argmax(1, keepdim=True)], 1)
    return tokens[0, 6:].tolist()


@pytest.mark.parametrize("encoding", ["xl", "shaw"])
@pytest.mark.parametrize("segment", [1, 4, 100])
def test_with_memory_of_everything_it_equals_whole_passes(encoding, segment):
    model = transformer(encoding)
    assert drawn(model, (AttentionSpan(mem_len=100), segment)) == by_whole_passes(model, 12)


@pytest.mark.parametrize("kind", ["lstm", "qrnn", "gla", "gated-delta"])
def test_so_it_does_without_attention(kind):
    model = small(kind=kind)
    assert drawn(model, (AttentionSpan(mem_len=1), 3)) == by_whole_passes(model, 12)


@pytest.mark.parametrize("encoding", ["absolute", "al-rfou"])
def test_positions_that_restart_read_the_newest_tokens_anew(encoding):
    model = transformer(encoding)
    assert drawn(model, (None, 5)) == by_whole_passes(model, 12, window=5)


SPANS = {
    "all": AttentionSpan(mem_len=100),
    "short": AttentionSpan(mem_len=4),
    "clamped": AttentionSpan(mem_len=9, clamp_len=5),
    "same length": AttentionSpan(mem_len=6, same_length=True),
    "none": AttentionSpan(mem_len=0),
}


@pytest.mark.parametrize(
    ("subject", "span"),
    [
        pytest.param(subject, span, id=f"{subject.name}-{span}")
        for subject in SUBJECTS
        for span in SPANS
        if subject.relative and (subject.clamps or span != "clamped")
    ],
)
def test_teacher_forcing_by_the_plain_pass_draws_the_same(subject, span):
    """In one pass behind the prompt, whatever memory is: token for token, and so is greedy."""
    look = SPANS[span]
    model, prompt = subject.build(), text(6)[0].numpy()
    for sampling in (LIKELIEST, Sampling(None, 3.0)):
        tokens = drawn(model, (look, 4), sampling)
        generator = torch.Generator().manual_seed(1)
        parts = teacher_forced(model, prompt, tokens, look, 4, torch.device("cpu"))
        again = [int(sampling.draw(row[None], [generator])) for part in parts for row in part]
        assert again == tokens


def test_a_one_layer_model_sees_mem_len_tokens_back_and_no_more():
    model = transformer("xl", n_layer=1)
    assert drawn(model, (AttentionSpan(mem_len=3), 1)) == by_whole_passes(model, 12, window=4)


def test_the_seed_decides_the_text():
    model, look, sampling = (
        transformer("xl"),
        (AttentionSpan(mem_len=8), 4),
        Sampling(None, 3.0),
    )
    assert drawn(model, look, sampling, 1) == drawn(model, look, sampling, 1)
    assert drawn(model, look, sampling, 1) != drawn(model, look, sampling, 2)


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_streams_of_a_batch_are_those_drawn_alone(subject):
    model, prompts, sampling = subject.build(), text(6, batch=3).numpy(), Sampling(5, 2.0)
    look = (AttentionSpan(mem_len=4) if subject.relative else None, 4)
    together = streams(model, prompts, look, sampling, [3, 1, 2], 12)
    for prompt, seed, stream in zip(prompts, [3, 1, 2], together, strict=True):
        assert drawn(model, look, sampling, seed, prompt) == stream


def test_tokens_are_those_that_multinomial_draws():
    log_probs = torch.randn(1, 50, generator=torch.Generator().manual_seed(1))
    ours, theirs = (torch.Generator().manual_seed(2) for _ in range(2))
    values, ids = log_probs.topk(20)
    for _ in range(200):
        token = Sampling(20, 0.7).draw(log_probs, [ours])
        place = torch.multinomial((values / 0.7).softmax(1), 1, generator=theirs)
        assert token == ids.gather(1, place)


def test_output_that_is_no_number_is_refused():
    with pytest.raises(UserError, match="not a number"):
        Sampling().draw(torch.full((1, 50), torch.nan), [torch.Generator()])


def frequencies(sampling, log_probs):
    rows = log_probs.expand(40_000, -1)
    tokens = sampling.draw(rows, [torch.Generator().manual_seed(1)])
    return np.bincount(tokens[:, 0], minlength=log_probs.shape[1]) / len(rows)


@pytest.mark.parametrize("cutoffs", [[], [4, 9]], ids=["plain", "adaptive"])
@pytest.mark.parametrize("top_k", [1, 3, 7, None, 1000])
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_tokens_are_drawn_from_the_top_renormalised(cutoffs, top_k, temperature):
    model = transformer("xl", cutoffs=cutoffs)
    hidden, _ = model(text(6), model.initial_state(1, AttentionSpan(mem_len=0)))
    log_probs = model.log_probs(hidden[:, -1]).detach() / 4
    expected = (log_probs[0] / temperature).softmax(0).numpy()
    expected[np.argsort(-expected)[top_k or VOCABULARY :]] = 0
    expected /= expected.sum()
    got = frequencies(Sampling(top_k, temperature), log_probs)
    np.testing.assert_allclose(got, expected, atol=0.012)
    assert (got[expected == 0] == 0).all()


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_keys_and_values_of_16_bits_draw_from_the_same_distribution(precision):
    """With the same random numbers draws differ as often as the distributions do, at least."""
    model, prompts, seeds = transformer("xl").float(), text(20, batch=40).repeat(25, 1), range(1000)
    look, drawn = (AttentionSpan(mem_len=12), 16), []
    for precision_ in ("fp32", precision):
        if precision_ != "fp32":
            model.keep_in(precision_)
        drawn.append(streams(model, prompts.numpy(), look, Sampling(None), seeds, 2))
    differ = np.mean(np.array(drawn[0]) != np.array(drawn[1]))
    assert differ < 0.01
