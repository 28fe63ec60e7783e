"""Scores in place: equal to the plain path whatever is masked and however streams are parted."""

from typing import Any

import pytest
import torch

from tests.models.subjects import ATTENDING, Subject, text, transformer
from txlbench.config.base import AttentionSpan
from txlbench.evaluation.invariants import stream_losses
from txlbench.models import kv_cache
from txlbench.models.kernels import cached_segment

TABLES_OF_ROWS = {"xl", "xl-pre-lnorm", "shaw", "shaw-bias"}


@pytest.fixture
def segments(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The results of `segment_attention`, which any score is enough for here."""
    made: list[torch.Tensor] = []

    def kept(*given: Any) -> torch.Tensor:
        made.append(cached_segment.segment_attention(*given))
        return made[-1]

    monkeypatch.setattr(kv_cache, "segment_attention", kept)
    monkeypatch.setattr(cached_segment, "SCORE_BYTES", 1)
    return made


@pytest.mark.parametrize("subject", ATTENDING, ids=lambda s: s.name)
@pytest.mark.parametrize(
    "span",
    [
        AttentionSpan(mem_len=7),
        AttentionSpan(mem_len=7, same_length=True),
        AttentionSpan(mem_len=7, clamp_len=3),
        AttentionSpan(mem_len=0),
        AttentionSpan(mem_len=6, stride=2),
    ],
)
@pytest.mark.parametrize("streams_at_once", [1, 2])
def test_it_equals_the_plain_path(
    subject: Subject,
    span: AttentionSpan,
    streams_at_once: int,
    segments: list[torch.Tensor],
    monkeypatch: pytest.MonkeyPatch,
):
    keys = span.mem_len + 5
    monkeypatch.setattr(cached_segment, "SCORE_BYTES", (streams_at_once - 1) * 2 * 5 * keys * 8 + 1)
    model, tokens = subject.build(), text(31, 3)
    plain = stream_losses(model, tokens, [5] * 6, span)[0]
    cached = model.evaluation_state(model.initial_state(3, span))
    found = stream_losses(model, tokens, [5] * 6, span, cached)[0]
    assert torch.allclose(found, plain, rtol=0, atol=1e-10)


def test_it_is_taken_by_tables_of_rows_whose_streams_are_alike(segments: list[torch.Tensor]):
    span, tokens, taken = AttentionSpan(mem_len=7), text(16, 2), {}
    for subject in ATTENDING:
        model = subject.build()
        state = model.evaluation_state(model.initial_state(2, span))
        segments.clear()
        _, state = model(tokens[:, :5], state)
        _, state = model(tokens[:, 5:10], state)
        taken[subject.name] = len(segments)
        if subject.name == "xl":
            segments.clear()
            model(tokens[:, 10:15], state.reset(torch.tensor([True, False])))
            assert not segments, "a stream that was reset sees fewer keys than the other"
    assert {name for name, count in taken.items() if count} == TABLES_OF_ROWS
    assert taken["xl"] == 4, "two segments in two layers"


def test_few_scores_are_left_to_the_other_kernel(
    segments: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cached_segment, "SCORE_BYTES", 2**20)
    model = transformer("xl")
    model(text(5), model.evaluation_state(model.initial_state(1, AttentionSpan(mem_len=7))))
    assert not segments
