"""The evaluator gives each target what its measurement says, at every batch size.

Best and shortest attention length, with ties and at the edge of the tolerance.

Sums of losses: every target has the same weight, whatever batch it came in.
"""

import numpy as np
import pytest
import torch

from tests.evaluation.by_hand import stream, windows
from tests.models.subjects import VOCABULARY, transformer
from txlbench.config.base import AttentionSpan
from txlbench.config.measurements import Measurement, at_attention_length
from txlbench.config.run_config import RunConfig
from txlbench.errors import UserError
from txlbench.evaluation.eval_streams import EvalStream, TargetBlocks
from txlbench.evaluation.scoring import LossSum, best_length, score, shortest_length

CPU = torch.device("cpu")
BOTH = ("xl", "shaw")


def tokens(count, seed=7):
    return np.random.default_rng(seed).integers(VOCABULARY, size=count).astype(np.uint8)


def measured(**given):
    settings = {"regime": "streaming", "split": "valid", "tgt_len": 5, **given}
    return Measurement(**{"stride": settings["tgt_len"], **settings})


def scored(model, ids, **given):
    return score(model, ids, measured(**given), model.config.n_layer, CPU, keep_losses=True)


def check(result, expected, tgt_len):
    """`expected` maps each prediction to (loss, position in the segment)."""
    losses = [expected[prediction][0] for prediction in sorted(expected)]
    assert result.tokens == len(losses)
    assert result.positions.tolist() == [prediction + 1 for prediction in sorted(expected)]
    assert result.losses.tolist() == pytest.approx(losses, abs=1e-5)
    assert result.loss == pytest.approx(np.mean(losses), abs=1e-5)
    for position in range(tgt_len):
        there = [loss for loss, at in expected.values() if at == position]
        found = result.by_position[position]
        assert found == (pytest.approx(np.mean(there), abs=1e-5) if there else None)


@pytest.mark.parametrize("encoding", ["xl", "shaw", "absolute", "al-rfou"])
@pytest.mark.parametrize(
    ("mem_len", "same_length"), [(0, False), (5, False), (7, False), (3, True)]
)
def test_one_stream_carries_its_memory_through_the_split(encoding, mem_len, same_length):
    model, ids = transformer(encoding), tokens(48)
    result = scored(model, ids, mem_len=mem_len, same_length=same_length, batch_size=1)
    check(
        result,
        stream(model, ids, 0, 47, 5, AttentionSpan(mem_len=mem_len, same_length=same_length)),
        5,
    )


def test_streams_start_cold_where_the_split_is_cut():
    model, ids = transformer("xl"), tokens(48)  # 47 predictions: slices of 16, 16 and 15
    result = scored(model, ids, mem_len=7, batch_size=3)
    parts = [
        stream(model, ids, *cut, 5, AttentionSpan(mem_len=7))
        for cut in ((0, 16), (16, 32), (32, 47))
    ]
    check(result, parts[0] | parts[1] | parts[2], 5)
    assert result.cold_starts == 3


def test_a_score_tells_the_number_format_in_which_it_was_computed():
    model, ids = transformer("xl").float(), tokens(48)
    assert scored(model, ids, mem_len=7).dtype == "fp32"
    with torch.autocast("cpu", torch.bfloat16):
        assert scored(model, ids, mem_len=7).dtype == "bf16"
    assert scored(model.double(), ids, mem_len=7).dtype == "float64"


def test_a_sample_reads_one_memory_before_each_block():
    model, ids = transformer("xl"), tokens(61)  # 60 predictions in blocks of 20, ends of 4
    result = scored(model, ids, mem_len=6, batch_size=3, tokens=12)
    expected = {}
    for end in (20, 40, 60):
        read = stream(model, ids, end - 10, end, 5, AttentionSpan(mem_len=6))
        expected |= {target: read[target] for target in range(end - 4, end)}
    check(result, expected, 5)
    assert result.cold_starts == 0


@pytest.mark.parametrize("encoding", ["xl", "shaw", "absolute", "al-rfou"])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_stride_one_is_a_full_window_for_every_token(encoding, batch_size):
    model, ids = transformer(encoding), tokens(30)
    result = scored(
        model, ids, regime="windows", tgt_len=6, stride=1, batch_size=batch_size, clamp_len=4
    )
    check(result, windows(model, ids, 0, 29, 6, 1, clamp_len=4), 6)
    assert result.cold_starts == 0


@pytest.mark.parametrize(("tgt_len", "stride"), [(6, 6), (6, 4), (7, 3), (50, 9), (1, 1)])
def test_windows_score_their_last_positions_and_the_first_one_all(tgt_len, stride):
    model, ids = transformer("xl"), tokens(30)
    result = scored(model, ids, regime="windows", tgt_len=tgt_len, stride=stride, batch_size=1)
    check(result, windows(model, ids, 0, 29, tgt_len, stride), tgt_len)


def test_sampled_windows_are_full_from_the_first_target_on():
    model, ids = transformer("xl"), tokens(41)
    result = scored(model, ids, regime="windows", tgt_len=6, stride=2, batch_size=2, tokens=8)
    expected = {}
    for end in (20, 40):  # four targets each; the first windows begin 4 tokens earlier
        read = windows(model, ids, end - 8, end, 6, 2)
        expected |= {target: read[target] for target in range(end - 4, end)}
    check(result, expected, 6)


def test_seven_odd_segments_or_one_give_the_same_total():
    model, ids = transformer("xl"), tokens(34)
    seven = scored(model, ids, tgt_len=5, mem_len=64, batch_size=1)
    one = scored(model, ids, tgt_len=33, mem_len=64, batch_size=1)
    assert seven.tokens == one.tokens == 33
    assert seven.loss == pytest.approx(one.loss, abs=1e-6)
    assert scored(model, ids, tgt_len=64, mem_len=0, batch_size=1).loss == one.loss


@pytest.mark.parametrize("encoding", BOTH)
@pytest.mark.parametrize(
    ("tgt_len", "mem_len", "same_length"),
    [(8, 8, False), (8, 12, False), (7, 3, False), (5, 16, True), (16, 6, True)],
)
def test_the_exact_mode_gives_one_number_at_every_batch_size(
    encoding, tgt_len, mem_len, same_length
):
    model, ids = transformer(encoding), tokens(1003)
    results = [
        scored(
            model,
            ids,
            tgt_len=tgt_len,
            mem_len=mem_len,
            same_length=same_length,
            batch_size=batch_size,
            exact=True,
        )
        for batch_size in (1, 3, 10, 64)
    ]
    assert {result.tokens for result in results} == {1002}
    assert {result.cold_starts for result in results} == {1}  # the beginning of the text
    assert [result.loss for result in results] == pytest.approx([results[0].loss] * 4, abs=1e-6)


def test_the_exact_mode_is_one_pass_and_differs_from_cold_streams():
    model, ids = transformer("xl"), tokens(1003)
    cold = [scored(model, ids, mem_len=8, batch_size=batch) for batch in (1, 64)]
    exact = scored(model, ids, mem_len=8, batch_size=64, exact=True)
    assert exact.loss == pytest.approx(cold[0].loss, abs=1e-6)
    assert abs(cold[1].loss - cold[0].loss) > 1e-4
    assert [result.cold_starts for result in cold] == [1, 64]


@pytest.mark.parametrize(("tgt_len", "stride"), [(6, 6), (7, 3), (9, 2)])
def test_exact_windows_give_one_number_too(tgt_len, stride):
    model, ids = transformer("xl"), tokens(303)
    settings = {"regime": "windows", "tgt_len": tgt_len, "stride": stride, "exact": True}
    losses = [scored(model, ids, batch_size=batch, **settings).loss for batch in (1, 3, 10, 64)]
    assert losses == pytest.approx([losses[0]] * 4, abs=1e-6)


@pytest.mark.parametrize("encoding", BOTH)
def test_the_length_of_segments_does_not_matter_at_a_fixed_attention_length(encoding):
    model, ids = transformer(encoding), tokens(300)
    losses = [
        scored(model, ids, tgt_len=tgt_len, mem_len=6, same_length=True, batch_size=2).loss
        for tgt_len in (1, 4, 6, 17, 150)
    ]
    assert losses == pytest.approx([losses[0]] * 5, abs=1e-5)
    assert abs(scored(model, ids, mem_len=7, same_length=True).loss - losses[0]) > 1e-4


@pytest.mark.parametrize("recurrence", [True, False])
@pytest.mark.parametrize("tgt_len", [1, 3, 8])
@pytest.mark.parametrize("length", [1, 2, 6])
def test_an_attention_length_counts_the_query_itself(recurrence, tgt_len, length):
    """One layer: the token `length` - 1 before the query matters, the one before it does not."""
    config = RunConfig.model_validate(
        {
            "corpus": "enwiki-sample",
            "train": {"tgt_len": 8, "recurrence": recurrence},
            "evaluate": {"tgt_len": tgt_len, "stride": 1, "batch_size": 1, "tokens": 1},
        }
    )
    measurement = at_attention_length(config, "valid", length)
    model, ids = transformer("xl", n_layer=1), tokens(40)

    def loss_after_changing(distance):
        """Of the last token, which the query at index -2 predicts."""
        changed = ids.copy()
        changed[-2 - distance] = (changed[-2 - distance] + 1) % VOCABULARY
        return score(model, changed, measurement, 1, CPU).loss

    unchanged = score(model, ids, measurement, 1, CPU)
    assert unchanged.tokens == 1
    assert abs(loss_after_changing(length - 1) - unchanged.loss) > 1e-5
    assert loss_after_changing(length) == unchanged.loss


@pytest.mark.parametrize("settings", [{}, {"regime": "windows", "stride": 2}, {"exact": True}])
def test_splits_shorter_than_a_segment(settings):
    model = transformer("xl")
    settings = {"mem_len": 0 if "regime" in settings else 4, **settings}
    for count in (2, 3, 5):
        result = scored(model, tokens(count), **settings)
        assert result.tokens == count - 1
        assert np.isfinite(result.loss)
    with pytest.raises(UserError, match="at least two tokens"):
        scored(model, tokens(1), **settings)


def test_windows_in_several_goes_are_the_same_as_in_one(monkeypatch):
    model, ids = transformer("xl"), tokens(60)
    settings = {"regime": "windows", "tgt_len": 6, "stride": 1}
    at_once = scored(model, ids, **settings)
    monkeypatch.setattr("txlbench.evaluation.scoring.WINDOW_TOKENS", 18)
    assert scored(model, ids, **settings).loss == pytest.approx(at_once.loss, abs=1e-9)


def test_scoring_reads_what_is_asked_for_only():
    """A huge corpus is memory-mapped: a sample must not load it."""

    class Watched(np.ndarray):
        read = 0

        def __getitem__(self, key):
            found = super().__getitem__(key)
            Watched.read += np.size(found)
            return found

    ids = tokens(100_000).view(Watched)
    scored(transformer("xl", n_layer=1), ids, mem_len=5, batch_size=2, tokens=20)
    assert Watched.read < 100


LOSSES = {16: 1.30, 32: 1.25, 48: 1.10, 64: 1.10, 80: 1.11}


def test_best_is_the_lowest_loss_and_the_shorter_of_equals():
    assert best_length(LOSSES) == 48
    assert best_length(dict(reversed(LOSSES.items()))) == 48


@pytest.mark.parametrize(
    ("tolerance", "length"), [(0.0, 48), (0.149, 48), (0.151, 32), (0.2001, 16), (10.0, 16)]
)
def test_shortest_is_within_the_tolerance_of_the_lowest(tolerance, length):
    assert shortest_length(LOSSES, tolerance) == length
    assert shortest_length(dict(reversed(LOSSES.items())), tolerance) == length


def test_a_loss_at_the_very_edge_of_the_tolerance_counts_as_equal():
    assert shortest_length({8: 1.5, 16: 1.0}, 0.5) == 8


def test_a_dip_between_worse_lengths_is_found():
    """The first length within the tolerance counts, even if a longer one is worse."""
    assert shortest_length({8: 1.004, 16: 1.3, 24: 1.0}, 0.005) == 8
    assert best_length({8: 1.004, 16: 1.3, 24: 1.0}) == 24


def test_the_training_regime_is_a_candidate_for_the_best():
    assert best_length(LOSSES, 1.2) == 48
    assert best_length(LOSSES, 1.10) == 48
    assert best_length(LOSSES, 1.09) is None
    assert shortest_length(LOSSES, 0.02, 1.09) == 48
    assert shortest_length(LOSSES, 0.005, 1.09) is None
    assert best_length({}, 1.0) is shortest_length({}, 0.1, 1.0) is None


def test_one_length_is_both():
    assert best_length({8: 2.0}) == shortest_length({8: 2.0}, 0.0) == 8


def sums(length, targets):
    return LossSum(length, TargetBlocks.of([EvalStream(0, 0, targets)]))


def test_batches_of_any_size_weigh_by_their_targets():
    total = sums(8, 8)
    total.add(np.full(7, 1.0, dtype=np.float32), np.arange(7), np.arange(7))
    total.add(np.array([9.0], dtype=np.float32), np.array([0]), np.array([7]))
    assert total.tokens == 8
    assert total.mean == pytest.approx((7 * 1 + 9) / 8)


def test_equal_positions_in_one_batch_all_count():
    total = sums(2, 3)
    total.add(np.array([1.0, 2.0, 6.0]), np.array([1, 1, 1]), np.arange(3))
    assert total.by_position() == [None, 3.0]


def test_sums_stay_exact_over_many_small_losses():
    """In float32 a sum over millions of targets would drift."""
    total = sums(1, 2**15)
    for _ in range(64):
        losses = np.full(2**15, 1 + 2**-20, dtype=np.float32)
        total.add(losses, np.zeros(2**15, dtype=np.int64), np.arange(2**15))
    assert total.mean == pytest.approx(1 + 2**-20, abs=1e-12)


def test_standard_errors_by_position() -> None:
    total = sums(3, 4)
    total.add(np.array([1.0, 3.0, 2.0, 5.0]), np.array([0, 0, 0, 1]), np.arange(4))
    expected = np.std([1, 3, 2], ddof=1) / 3**0.5
    assert total.errors_by_position() == [pytest.approx(expected), None, None]


@pytest.mark.parametrize(
    "given",
    [
        {"mem_len": 6},
        {"mem_len": 6, "tokens": 301},
        {"regime": "windows", "stride": 2, "tokens": 301, "batch_size": 7},
        {"mem_len": 6, "exact": True, "batch_size": 3},
    ],
)
def test_blocks_are_equal_parts_of_the_targets_in_order(given):
    model, ids = transformer("xl"), tokens(450)
    result = scored(model, ids, **given)
    blocks = np.arange(result.tokens) * 200 // result.tokens
    expected = [result.losses[blocks == block].mean() for block in range(200)]
    assert result.by_block == pytest.approx(expected, abs=1e-5)


def test_equal_targets_are_known_by_their_fingerprint_however_they_are_read():
    model, ids = transformer("xl"), tokens(120)
    ways = [
        {"mem_len": 6},
        {"mem_len": 9, "batch_size": 3},
        {"regime": "windows", "stride": 2, "batch_size": 4},
        {"mem_len": 6, "exact": True},
    ]
    assert len({scored(model, ids, **way).targets for way in ways}) == 1
    sampled = {"mem_len": 6, "tokens": 40}
    other = {scored(model, ids, **way).targets for way in (ways[0], sampled)}
    assert len(other | {scored(model, ids, **sampled, batch_size=3).targets}) == 3
