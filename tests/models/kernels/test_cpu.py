"""Attention tile by tile equals the plain path: values and gradients, for every encoding."""

from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.models.subjects import text, transformer
from txlbench import seeding
from txlbench.config.base import AttentionSpan
from txlbench.models.kernels import tiles
from txlbench.models.kernels.cpu import AttentionDropout, fused_attention
from txlbench.models.kernels.tiles import stream_groups
from txlbench.models.mask import Mask
from txlbench.models.positions.encoding import ScoreTerms
from txlbench.models.positions.tables import DistanceTable

MODELS: dict[str, dict[str, Any]] = {
    "xl": {"encoding": "xl"},
    "xl, untied": {"encoding": "xl", "untie_r": True},
    "xl, norm first": {"encoding": "xl", "pre_lnorm": True},
    "shaw": {"encoding": "shaw"},
    "shaw, clipped": {"encoding": "shaw", "max_distance": 3},
    "shaw, biases": {"encoding": "shaw", "shaw_bias": True},
    "absolute": {"encoding": "absolute"},
    "al-rfou": {"encoding": "al-rfou"},
    "alibi": {"encoding": "alibi"},
    "rope": {"encoding": "rope"},
    "none": {"encoding": "none"},
    **{name: {"encoding": name} for name in ("t5", "kerple", "fox", "learned")},
    "rotary": {"encoding": "rotary"},
}
ALIKE = ("none", "t5", "kerple", "learned", "rotary")
"""Models whose terms others have too."""
SPANS = {
    "memory": AttentionSpan(mem_len=6),
    "sinks": AttentionSpan(mem_len=6, same_length=True, sinks=2),
    "no memory": AttentionSpan(mem_len=0),
    "clamped": AttentionSpan(mem_len=6, clamp_len=2),
    "same length": AttentionSpan(mem_len=5, same_length=True),
    "same length, short": AttentionSpan(mem_len=2, same_length=True),
    "half loss": AttentionSpan(mem_len=5, stride=2),
}
TILES = [2**22, 1200, 160]
"""Bytes of a tile: several streams, one of them, some of its queries."""


def trained(
    model: Any, span: AttentionSpan, forget: bool, watch: bool, seed: int = 5
) -> tuple[Any, ...]:
    """The loss of a text's third segment and all gradients, by the plain path if watched."""
    seeding.seed_everything(4)
    tokens, state = text(16, batch=5, seed=seed), model.initial_state(5, span)
    observer = (lambda *_: None) if watch else None
    for start in (0, 5):
        if forget and start:
            state = state.reset(torch.arange(5) % 2 == 0)
        _, state = model(tokens[:, start : start + 5], state, observer)
    hidden, _ = model(tokens[:, 10:15], state, observer)
    loss = model.losses(hidden, tokens[:, 11:16]).sum()
    used = [p for p in model.parameters() if p.numel()]
    return loss, *torch.autograd.grad(loss, used, allow_unused=True)


@pytest.fixture(params=[False, True], ids=["as in 32 bits", "long rows, as in 16"])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes rows of scores as long as 16 bits have them, in a format that can be compared."""
    if request.param:
        lengthened = tiles.row_length
        monkeypatch.setattr(tiles, "row_length", lambda n, _: lengthened(n, torch.bfloat16))


@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    ("settings", "span"),
    [
        pytest.param(
            MODELS[model],
            span,
            id=f"{model}, {name}",
            marks=pytest.mark.full if model in ALIKE and name != "memory" else (),
        )
        for model in MODELS
        for name, span in SPANS.items()
    ],
)
def test_it_equals_the_plain_path(settings: dict[str, Any], span: AttentionSpan, monkeypatch: Any):
    model = transformer(**settings, dropout=0.2, dropatt=0.3).train()
    for forget in (False, True):
        expected = trained(model, span, forget, watch=True)
        assert sum(gradient is not None for gradient in expected) > 5
        for tile_bytes in TILES:
            monkeypatch.setattr(tiles, "TILE_BYTES", tile_bytes)
            got = trained(model, span, forget, watch=False)
            for one, other in zip(got, expected, strict=True):
                assert (one is None) == (other is None)
                assert one is None or torch.allclose(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("tile_bytes", [2**22, 160])
@pytest.mark.parametrize("attention_length", [None, 3])
@pytest.mark.parametrize("with_rows", [False, True])
@pytest.mark.parametrize("dropped", [False, True])
def test_its_gradient_is_that_of_its_values(
    dropped: bool, with_rows: bool, attention_length: int | None, tile_bytes: int, monkeypatch: Any
):
    monkeypatch.setattr(tiles, "TILE_BYTES", tile_bytes)
    batch, queries, keys, heads, size = 3, 3, 6, 2, 2
    generator = torch.Generator().manual_seed(2)

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    mask = Mask(
        queries=queries,
        keys=keys,
        attention_length=attention_length,
        valid_len_B=torch.tensor([0, 2, 3]),
        like=leaf(0),
    )
    dropout = AttentionDropout.draw((heads, batch, queries, keys), 0.3) if dropped else None

    def attend(query: Any, context: Any, u: Any, v: Any, rows: Any, bias: Any) -> torch.Tensor:
        table = DistanceTable(rows if with_rows else None, bias)
        return fused_attention(query, context, ScoreTerms(u, v, table), mask, dropout)

    given = (
        *(leaf(batch, queries, heads, size), leaf(batch, keys, 2, heads, size)),
        *(leaf(heads, size), leaf(heads, size)),
        *(leaf(heads, size, keys + 1), leaf(heads, keys + 1)),
    )
    assert torch.autograd.gradcheck(attend, given, fast_mode=True)


@pytest.mark.parametrize("forget", [False, True])
def test_bfloat16_is_as_close_to_float32_as_the_plain_path_is(forget: bool):
    """On average: in models this small a ReLU that rounding switches decides single errors."""
    model, span = transformer("xl", n_layer=3).float().train(), AttentionSpan(mem_len=6)

    def error(got: Any, exact: Any) -> float:
        wrong = sum((a - b).pow(2).sum() for a, b in zip(got[1:], exact[1:], strict=True))
        return float(wrong / sum(b.pow(2).sum() for b in exact[1:])) ** 0.5

    plain, fused = [], []
    for seed in range(12):
        exact = trained(model, span, forget, watch=True, seed=seed)
        with torch.autocast("cpu", torch.bfloat16):
            plain.append(error(trained(model, span, forget, watch=True, seed=seed), exact))
            fused.append(error(trained(model, span, forget, watch=False, seed=seed), exact))
    assert 0 < sum(fused) < 1.5 * sum(plain)


@pytest.mark.parametrize("attention_length", [None, 1, 4, 99])
@pytest.mark.parametrize("tile_bytes", TILES)
def test_tiles_hold_each_query_once_and_all_that_it_sees(
    tile_bytes: int, attention_length: int | None, monkeypatch: Any
):
    monkeypatch.setattr(tiles, "TILE_BYTES", tile_bytes)
    found = list(tiles.tiles(7, 12, 2 * 7 * 12 * 8, attention_length))
    assert [place for tile in found for place in range(7)[tile.queries]] == list(range(7))
    for tile in found:
        assert tile.keys.stop == 5 + tile.queries.stop
        reach = attention_length or 12
        assert tile.keys.start == max(0, 5 + tile.queries.start - reach + 1)
    groups = list(stream_groups(5, 480))
    assert [group.start for group in groups] == [0, *(a.stop for a, _ in pairwise(groups))]
    assert groups[-1].stop == 5


def test_training_keeps_the_probabilities_and_no_other_scores():
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(t), t)[1], lambda t: t):
        tokens, model = text(120, batch=2), transformer("xl", n_layer=1, d_head=3).train()
        model(tokens, model.initial_state(2, AttentionSpan(mem_len=0)))
    storages = {t.untyped_storage().data_ptr(): t.numel() for t in kept}
    scores = 2 * 2 * 120 * 120
    assert sum(size for size in storages.values() if size >= scores / 2) == scores


@pytest.mark.parametrize("keys", [1, 31, 32, 33, 480, 481, 511, 512, 513, 1023, 1024, 5000])
def test_rows_of_16_bits_fit_behind_what_follows_keys_and_distances(keys: int):
    tile = tiles.Tile(slice(0, 1), slice(0, keys))
    wide = tile.wide_keys(torch.bfloat16)
    assert wide.stop % 32 == 0
    assert wide.stop % 512
    assert keys <= wide.stop <= keys + tiles.PADDING
    rows = keys + 1 + tiles.PADDING
    distances = tile.distances(rows, torch.bfloat16)
    assert distances.start == 0
    assert wide.stop + 1 <= distances.stop <= rows
    assert tile.wide_keys(torch.float32) == slice(0, keys)
    assert tile.distances(rows, torch.float32) == slice(0, keys + 1)
