"""Attention is counted right: models made by hand, and every encoding against the plain pass."""

import math

import numpy as np
import pytest
import torch

from tests.models.subjects import ATTENDING, text, transformer
from txlbench.config.base import AttentionSpan
from txlbench.config.measurements import Measurement
from txlbench.evaluation import attention_reading
from txlbench.evaluation.attention_reading import AttentionPlan, read_attention
from txlbench.evaluation.attention_tally import AttentionTally, Counted, by_distance
from txlbench.models.interface import Observer

CPU = torch.device("cpu")
KEYS = 6
STREAMING = Measurement(
    regime="streaming", split="test", tgt_len=4, stride=4, mem_len=KEYS, same_length=True,
    attention_length=KEYS, batch_size=3,
)  # fmt: skip
WINDOWS = Measurement(
    regime="windows", split="test", tgt_len=KEYS, stride=2, attention_length=KEYS, batch_size=3
)


def ids(length=41):
    return text(length)[0].numpy()


def read(model, measurement=STREAMING, given=None, heads=2):
    plan = AttentionPlan(measurement, len(ids()) - 1, given)
    shown = given or range(0)
    tally = AttentionTally(plan.keys, plan.least, plan.predictions, CPU, shown)
    read_attention(model, ids(), plan, heads, tally, CPU, lambda *_: None)
    return tally


def averages(tally, layer=0):
    """Profile, mean distance and entropy of each head."""
    sums, count = tally.layers[layer], tally.counts_Z.sum()
    return (
        (sums.profile_HD / count).numpy(),
        (sums.distance_ZH.sum(0) / count).numpy(),
        (sums.entropy_ZH.sum(0) / count).numpy(),
    )


def blind(encoding, **settings):
    """A model whose queries and keys are 0."""
    model = transformer(encoding, **settings)
    for block in model.blocks:
        torch.nn.init.zeros_(block.attention.q_net.weight)
        torch.nn.init.zeros_(block.attention.kv_net.weight)
    return model


def test_a_value_stands_at_its_distance():
    values = torch.arange(2 * 3 * 2 * 5.0).view(2, 3, 2, 5)
    found, there = by_distance(values, 6)
    for query in range(2):
        for apart in range(6):
            key = 5 - 2 + query - apart
            assert there[query, apart] == (key >= 0)
            expected = values[:, :, query, key] if key >= 0 else torch.zeros(2, 3)
            assert torch.equal(found[:, :, query, apart], expected)


def test_heads_without_scores_attend_to_all_keys_alike():
    profile, distance, entropy = averages(read(blind("shaw")))
    np.testing.assert_allclose(profile, 1 / KEYS)
    np.testing.assert_allclose(distance, (KEYS - 1) / 2)
    np.testing.assert_allclose(entropy, math.log(KEYS))


def test_heads_whose_bias_is_known_attend_as_it_says():
    """Head 0 looks three back and nowhere else, head 1 halves its attention from key to key."""
    model = blind("shaw", shaw_bias=True, d_head=4, max_distance=KEYS)
    with torch.no_grad():
        model.encoding.content_bias.zero_()
        bias = model.encoding.distance_bias  # over sqrt(d_head), like the scores
        bias[..., 0], bias[:, 3, 0] = 0.0, 200.0
        bias[..., 1] = -2 * math.log(2) * torch.arange(KEYS + 1)
    tally = read(model)
    profile, distance, entropy = averages(tally)
    halves = 0.5 ** np.arange(KEYS)
    halves /= halves.sum()
    np.testing.assert_allclose(profile[1], halves)
    np.testing.assert_allclose(distance, [3, halves @ np.arange(KEYS)])
    np.testing.assert_allclose(entropy, [0, -(halves * np.log(halves)).sum()], atol=1e-9)
    term = tally.layers[0].terms["d"]
    scores = -math.log(2) * np.arange(KEYS)
    assert term.scales(tally.layers[0].seen_D)[1] == pytest.approx(scores.std())
    assert term.spreads(tally.layers[0].seen_D).max() < 1e-6
    np.testing.assert_allclose(term.profile_HD[1] / tally.counts_Z.sum(), halves)


class Kept(Observer):
    """Keeps what a pass shows of each layer."""

    def __init__(self):
        self.attention = {}

    def __call__(self, layer, hidden_BTD, attention_HBTS):
        self.attention[layer] = attention_HBTS


@pytest.mark.parametrize("subject", ATTENDING, ids=lambda subject: subject.name)
@pytest.mark.parametrize("measurement", [STREAMING, WINDOWS], ids=lambda one: one.regime)
def test_every_encoding_s_rows_sum_to_one_and_stay_in_sight(subject, measurement):
    tally = read(subject.build(), measurement)
    assert set(tally.layers) == {0, 1}
    assert tally.row_error < 1e-12
    assert abs(tally.leak) < 1e-12
    assert tally.counts_Z.sum() >= 20
    for layer in tally.layers:
        profile, distance, entropy = averages(tally, layer)
        np.testing.assert_allclose(profile.sum(-1), 1)
        np.testing.assert_allclose(distance, profile @ np.arange(KEYS))
        assert (entropy > 0).all()
        assert (entropy <= math.log(KEYS)).all()


@pytest.mark.parametrize("subject", ATTENDING, ids=lambda subject: subject.name)
def test_terms_add_up_to_the_scores(subject):
    """The softmax of their sum is attention, with memory too."""
    model, tokens = subject.build(), text(9, batch=2)
    state = model.initial_state(2, AttentionSpan(mem_len=5))
    _, state = model(tokens[:, :5], state)
    kept, seen = Kept(), {}

    class Watching(AttentionTally):
        def see_terms(self, layer, terms_HBTS):
            seen[layer] = terms_HBTS

        def add(self, layer, attention_HBTS):
            kept(layer, None, attention_HBTS)

    model(tokens[:, 5:], state, Watching(9, 9, 9, CPU))
    causal = torch.full((4, 9), -torch.inf).triu(6).double()
    for layer, terms in seen.items():
        scores = sum(terms.values()) + causal
        torch.testing.assert_close(scores.softmax(-1), kept.attention[layer])
        by_paper = {"xl": "abcd", "shaw": "ab", "shaw-bias": "abcd", "alibi": "ad"}
        expected = by_paper.get(subject.name.removesuffix("-pre-lnorm"), sorted(terms))
        assert sorted(terms) == sorted(expected)


def test_a_shift_of_distances_by_one_shows():
    """Term (d) is then no longer the same for all queries at one distance."""
    model = transformer("xl")
    tally = read(model)
    seen = tally.layers[0].seen_D
    term = tally.layers[0].terms["d"]
    assert term.spreads(seen).max() < 1e-6 * term.scales(seen).max()
    wrong = AttentionTally(KEYS, KEYS, 40, CPU)
    chosen = torch.ones(1, 4, dtype=torch.bool)
    wrong.expect(Counted(chosen, torch.arange(4)[None]))
    unshifted = torch.arange(10.0, 0, -1).expand(2, 1, 4, 10)
    wrong.see_terms(0, {"d": unshifted})
    wrong.add(0, torch.full((2, 1, 4, 10), 0.1))
    of_wrong = wrong.layers[0].terms["d"]
    assert of_wrong.scales(wrong.layers[0].seen_D)[0] > 1
    assert wrong.leak == pytest.approx(0.4)


@pytest.mark.parametrize("measurement", [STREAMING, WINDOWS], ids=lambda one: one.regime)
def test_attention_of_a_layer_is_never_larger_than_allowed(measurement, monkeypatch):
    """Whatever the split: nothing else grows with it."""
    monkeypatch.setattr(attention_reading, "LARGEST", 600)
    sizes = []
    monkeypatch.setattr(
        AttentionTally, "add", lambda _, __, attention_HBTS: sizes.append(attention_HBTS.numel())
    )
    wide = measurement.model_copy(update={"tgt_len": KEYS, "batch_size": 5})
    read(transformer("xl"), attention_reading.fitting(wide, 2))
    assert 60 < max(sizes) <= 600


@pytest.mark.parametrize("measurement", [STREAMING, WINDOWS], ids=lambda one: one.regime)
def test_given_queries_have_the_attention_of_a_pass_of_their_own(measurement):
    model, queries = transformer("xl", n_layer=1), range(20, 23)
    tally = read(model, measurement, queries)
    assert {place for _, place in tally.rows} == {20, 21, 22}
    for place in queries:
        row = tally.rows[0, place]
        seen = int((row[0] > 0).sum())
        tokens = torch.as_tensor(ids()[place - seen + 1 : place + 1])[None]
        kept = Kept()
        model(tokens, model.initial_state(1, AttentionSpan(mem_len=0)), kept)
        alone = kept.attention[0][:, 0, -1].flip(-1).float()
        torch.testing.assert_close(row[:, :seen], alone.detach())
        assert seen == KEYS if measurement.regime == "streaming" else 5 <= seen <= KEYS


def test_how_many_are_read_at_once_changes_nothing(monkeypatch):
    model = transformer("xl")
    whole = averages(read(model, WINDOWS), 1)
    monkeypatch.setattr(attention_reading, "LARGEST", 1)
    for one, other in zip(whole, averages(read(model, WINDOWS), 1), strict=True):
        np.testing.assert_allclose(one, other)
    assert attention_reading.fitting(STREAMING, 2).tgt_len == 1
    short = averages(read(model, attention_reading.fitting(STREAMING, 2)), 0)
    for one, other in zip(averages(read(model), 0), short, strict=True):
        np.testing.assert_allclose(one, other)
