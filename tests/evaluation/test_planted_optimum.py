"""The streaming optimum: each target with the context that attention reaches, by hand."""

import numpy as np
import pytest

from tests.evaluation.by_hand import stream
from tests.models.subjects import transformer
from txlbench.config.measurements import Measurement
from txlbench.data.planted_process import PlantedProcess
from txlbench.evaluation.planted_optimum import streaming_optimum
from txlbench.models.interface import View

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
    """A lead-in of one memory, 6 tokens, before the 10 targets of each lane, in segments of 6."""
    found = []
    for position in positions:
        lane = min(end for end in ends if end >= position) - 10 - 6
        offset = (position - 1 - lane) % 6
        start = position - 1 - offset
        found.append(position - max(lane, start - 6))
    return np.array(found)


def test_no_model_is_better_than_the_context_counted_by_hand_allows():
    """A one-layer model cannot tell two texts apart that differ outside that context only."""
    model, changed = transformer("xl", n_layer=1), IDS[:60] % 8
    other = changed.copy()
    other[:20] = (other[:20] + 1) % 8
    view = View(mem_len=8)
    one, two = (stream(model, ids, 0, 59, 6, view) for ids in (changed, other))
    for p in range(59):
        context = p % 6 + 1 + 8
        reaches = p + 1 - context < 20
        assert (one[p][0] != two[p][0]) == reaches, p
