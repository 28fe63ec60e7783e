"""The context of each scored token is what a model of one layer really sees.

Streams and segments: each prediction that is asked for is scored once, whatever the cut.

The streaming optimum: each target with the context that attention reaches, by hand.
"""

import itertools

import numpy as np
import pytest
import torch

from tests.evaluation import by_hand
from tests.models.subjects import VOCABULARY, transformer
from txlbench.config.base import AttentionSpan
from txlbench.config.measurements import Measurement
from txlbench.data.planted import PlantedProcess
from txlbench.errors import UserError
from txlbench.evaluation.eval_streams import (
    eval_streams,
    seen_context,
    stream_segments,
    streaming_optimum,
)
from txlbench.evaluation.scoring import score

MEASUREMENTS = {
    "streams": {"regime": "streaming", "tgt_len": 5, "stride": 5, "mem_len": 7, "batch_size": 3},
    "a sample": {
        **{"regime": "streaming", "tgt_len": 4, "stride": 4, "mem_len": 6},
        **{"batch_size": 2, "tokens": 20},
    },
    "no memory": {"regime": "streaming", "tgt_len": 5, "stride": 5, "batch_size": 2},
    "windows": {"regime": "windows", "tgt_len": 6, "stride": 2, "batch_size": 3},
}


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_token_beyond_the_context_changes_nothing_and_the_last_inside_does(name):
    model = transformer("xl", n_layer=1)
    ids = np.random.default_rng(3).integers(VOCABULARY, size=61).astype(np.uint8)
    measurement = Measurement(split="test", **MEASUREMENTS[name])

    def losses(changed=None):
        other = ids.copy()
        if changed is not None:
            other[changed] = (other[changed] + 1) % VOCABULARY
        found = score(model, other, measurement, 1, torch.device("cpu"), keep_losses=True)
        return dict(zip(found.positions.tolist(), found.losses.tolist(), strict=True))

    plain = losses()
    positions, contexts = seen_context(len(ids) - 1, measurement, 1)
    assert positions.tolist() == sorted(plain)
    for position, context in zip(positions.tolist()[::3], contexts.tolist()[::3], strict=True):
        assert losses(position - context)[position] != plain[position]
        if context < position:
            assert losses(position - context - 1)[position] == plain[position]


def measured(**given):
    settings = {"regime": "streaming", "split": "valid", "tgt_len": 4, **given}
    return Measurement(**{"stride": settings["tgt_len"], **settings})


def scored(predictions, measurement, n_layer=2):
    """The predictions that are scored, in order, with repetitions."""
    return sorted(
        target
        for stream in eval_streams(predictions, measurement, n_layer)
        for segment in stream_segments(stream, measurement)
        for target in range(
            segment.start + segment.length - segment.scored, segment.start + segment.length
        )
    )


STREAMS = [
    measured(tgt_len=tgt_len, mem_len=mem_len, batch_size=batch, tokens=tokens, exact=exact)
    for tgt_len, mem_len, batch, tokens, exact in itertools.product(
        (1, 4, 7), (0, 3, 8), (1, 3, 5, 64), (None, 1, 7, 20), (False, True)
    )
]
WINDOWS = [
    measured(regime="windows", tgt_len=tgt_len, stride=stride, **rest)
    for (tgt_len, stride), rest in itertools.product(
        ((1, 1), (4, 1), (4, 4), (7, 3), (9, 2)),
        (
            {"batch_size": batch, "tokens": tokens, "exact": exact}
            for batch in (1, 3, 5, 64)
            for tokens in (None, 1, 7, 20)
            for exact in (False, True)
        ),
    )
]
SIZES = (1, 2, 3, 8, 23, 101)


@pytest.mark.parametrize("kind", [STREAMS, WINDOWS], ids=["streaming", "windows"])
def test_every_prediction_that_is_asked_for_is_scored_once(kind):
    for predictions, measurement in itertools.product(SIZES, kind):
        found = scored(predictions, measurement)
        wanted = min(measurement.tokens or predictions, predictions)
        assert len(found) == len(set(found)) == wanted, (predictions, measurement)
        assert set(found) <= set(range(predictions)), (predictions, measurement)


def test_any_number_of_tokens_fits_into_any_number_of_blocks():
    for predictions in range(1, 30):
        for tokens, batch in itertools.product(range(1, predictions + 1), range(1, 12)):
            found = scored(predictions, measured(tokens=tokens, batch_size=batch))
            assert len(found) == tokens, (predictions, tokens, batch)


@pytest.mark.parametrize("predictions", SIZES)
@pytest.mark.parametrize(("tokens", "batch"), [(1, 1), (7, 3), (20, 5), (20, 64)])
def test_sampled_targets_depend_on_split_tokens_and_batch_only(predictions, tokens, batch):
    """So that rows and attention lengths are compared on the same targets."""
    chosen = {
        tuple(scored(predictions, measurement))
        for measurement in [*STREAMS, *WINDOWS]
        if (measurement.tokens, measurement.batch_size) == (tokens, batch)
    }
    assert len(chosen) == 1


def test_sampled_targets_are_spread_over_the_split():
    found = scored(1000, measured(tokens=20, batch_size=5))
    assert found == [p for end in (200, 400, 600, 800, 1000) for p in range(end - 4, end)]


def test_segments_are_read_within_their_stream_and_never_longer_than_a_segment():
    for predictions, measurement in itertools.product(SIZES, [*STREAMS, *WINDOWS]):
        for stream in eval_streams(predictions, measurement, 2):
            assert 0 <= stream.start <= stream.first < stream.end <= predictions
            for segment in stream_segments(stream, measurement):
                assert stream.start <= segment.start
                assert segment.start + segment.length <= stream.end
                assert 0 <= segment.scored <= segment.length <= measurement.tgt_len


def test_streams_are_read_without_gaps_so_that_memory_is_right():
    for predictions, measurement in itertools.product(SIZES, STREAMS):
        for stream in eval_streams(predictions, measurement, 2):
            position = stream.start
            for segment in stream_segments(stream, measurement):
                assert segment.start == position
                position += segment.length
            assert position == stream.end


@pytest.mark.parametrize("kind", [STREAMS, WINDOWS], ids=["streaming", "windows"])
def test_exact_lanes_are_cut_where_one_pass_over_the_split_would_cut(kind):
    for predictions, measurement in itertools.product(SIZES, kind):
        if measurement.exact:
            for stream in eval_streams(predictions, measurement, 2):
                assert stream.start % measurement.stride == 0, (predictions, measurement)


def test_lead_in_of_streams():
    """Cold over a whole split; one memory before a sample; all that can reach it if exact."""

    def lead(**given):
        stream = eval_streams(
            1000, measured(tgt_len=4, mem_len=6, batch_size=4, **given), n_layer=3
        )[1]
        return stream.first - stream.start

    assert lead() == 0
    assert lead(tokens=8) == 6
    assert lead(exact=True) == 3 * 8  # segments that hold a memory of 6, for each layer
    assert lead(exact=True, tokens=8) >= 3 * 8


def test_there_are_at_most_batch_size_lanes():
    for predictions, measurement in itertools.product(SIZES, [*STREAMS, *WINDOWS]):
        assert len(eval_streams(predictions, measurement, 2)) <= measurement.batch_size


@pytest.mark.parametrize("exact", [False, True])
def test_a_split_of_one_token_has_nothing_to_predict(exact):
    with pytest.raises(UserError, match="split valid has nothing to predict"):
        eval_streams(0, measured(exact=exact), 2)


PROCESS = PlantedProcess(lags=(4, 10), alphabets=(5, 3), repeats=0.8)
IDS = PROCESS.sequence(241, seed=3)


def measurement(**settings):
    fixed = {"regime": "streaming", "split": "test", "tgt_len": 6, "stride": 6, "batch_size": 1}
    return Measurement.model_validate({**fixed, **settings})


def optimum(contexts):
    positions = np.arange(1, 241)
    return PROCESS.losses(IDS, positions, np.minimum(contexts, positions)).mean()


@pytest.mark.parametrize("mem_len", [0, 3, 8, 500])
def test_a_target_has_its_segment_so_far_and_the_memory(mem_len):
    into_segment = np.arange(240) % 6 + 1
    found = streaming_optimum(PROCESS, IDS, measurement(mem_len=mem_len), n_layer=2)
    assert found == pytest.approx(optimum(into_segment + mem_len), abs=1e-12)


def test_with_same_length_it_has_exactly_the_memory():
    found = streaming_optimum(PROCESS, IDS, measurement(mem_len=5, same_length=True), 2)
    assert found == pytest.approx(optimum(np.full(240, 5)), abs=1e-12)


def test_windows_and_samples_of_the_split_are_counted_as_the_evaluator_reads_them():
    windows = measurement(regime="windows", tgt_len=12, stride=4)
    into_window = np.where(np.arange(240) < 12, np.arange(240) + 1, 9 + np.arange(240) % 4)
    assert streaming_optimum(PROCESS, IDS, windows, 1) == pytest.approx(optimum(into_window))
    sample = measurement(mem_len=6, batch_size=3, tokens=30)
    ends = [80, 160, 240]
    contexts = np.concatenate([6 + np.arange(10) % 6 + 1 + 0 * end for end in ends])
    positions = np.concatenate([np.arange(end - 9, end + 1) for end in ends])
    expected = PROCESS.losses(IDS, positions, _contexts(positions, ends)).mean()
    assert len(contexts) == len(positions)
    assert streaming_optimum(PROCESS, IDS, sample, 1) == pytest.approx(expected)


def _contexts(positions, ends):
    """A lead-in of one memory, 6 tokens, before the 10 targets of each stream, in segments of 6."""
    found = []
    for position in positions:
        stream = min(end for end in ends if end >= position) - 10 - 6
        offset = (position - 1 - stream) % 6
        start = position - 1 - offset
        found.append(position - max(stream, start - 6))
    return np.array(found)


def test_no_model_is_better_than_the_context_counted_by_hand_allows():
    """A one-layer model cannot tell two texts apart that differ outside that context only."""
    model, changed = transformer("xl", n_layer=1), IDS[:60] % 8
    other = changed.copy()
    other[:20] = (other[:20] + 1) % 8
    span = AttentionSpan(mem_len=8)
    one, two = (by_hand.stream(model, ids, 0, 59, 6, span) for ids in (changed, other))
    for p in range(59):
        context = p % 6 + 1 + 8
        reaches = p + 1 - context < 20
        assert (one[p][0] != two[p][0]) == reaches, p
