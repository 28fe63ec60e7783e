"""`attention` of trained and pretrained models: as a pass over single windows gives it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.models.architectures.tiny import TINY
from tests.models.pretrained.architectures import save_model
from tests.runs.trial import finished, write_spec
from txlbench.commands import show_attention
from txlbench.commands.model_ref import resolve
from txlbench.commands.show_attention import AttentionRequest, measure_attention
from txlbench.commands.texts import read_text
from txlbench.config.base import AttentionSpan
from txlbench.errors import UserError
from txlbench.evaluation.attention_tally import BLOCKS

CPU, FULL = torch.device("cpu"), pytest.mark.full
ASKED = AttentionRequest("", split="all", tokens=200, targets=4, device="cpu", command="typed")


def asked(settings=None, /, **changes):
    write_spec(settings)
    return replace(ASKED, model=str(finished().path), **changes)


def alone(model, ids, place, keys):
    """Attention of head 2 by distance, of the query before `place` at the end of its own window."""
    tokens, seen = torch.as_tensor(ids[place - keys : place].astype(np.int64))[None], []
    state = model.initial_state(1, AttentionSpan(mem_len=0))
    with torch.no_grad():
        model(tokens, state, lambda _, __, attention_HBTS: seen.append(attention_HBTS))
    return seen[0][1, 0, -1].flip(-1)


def test_a_run_is_read_with_its_memory(folder):
    request = asked(at=100, heads=((1, 2),))
    made = measure_attention(request)
    assert (made.keys, made.regime, made.queries) == ((16, 16), "streaming", 200)
    assert [head.name for head in made.heads] == ["1.1", "1.2"]
    assert made.letters == ("a", "b", "c", "d")
    assert made.row_error < 1e-5
    assert abs(made.leak) < 1e-5
    assert all(sum(head.profile) == pytest.approx(1, abs=1e-3) for head in made.heads)
    for head in made.heads:
        mean = np.arange(16) @ head.profile
        assert head.distance.value == pytest.approx(mean, rel=1e-3)
        assert head.distance.low < head.distance.value < head.distance.high
        assert head.first is None
    ref = resolve(request.model)
    ids, model = read_text(ref, None, None, "all").ids, ref.open(CPU)
    (rows,) = made.shown.heads
    for line, place in zip(rows.rows, range(100, 104), strict=True):
        np.testing.assert_allclose(line, alone(model, ids, place, 16), rtol=2e-4, atol=1e-6)
    assert made.shown.first == 100 - 16
    assert "".join(made.shown.tokens) == bytes(ids[84:104].tolist()).decode()


def test_without_memory_it_is_read_in_windows(folder):
    made = measure_attention(asked({"train.recurrence": False, "model.encoding": "absolute"}))
    assert (made.keys, made.regime) == ((7, 8), "windows")
    assert made.letters == ("a",)
    assert all(0 <= head.first <= 1 for head in made.heads)


def test_the_whole_split_counts_but_for_its_first_queries(folder):
    """Which have too few keys before them; streams in between have a lead-in."""
    request = asked(whole=True)
    ids = read_text(resolve(request.model), None, None, "all").ids
    assert measure_attention(request).queries == len(ids) - 1 - 15


@pytest.mark.parametrize(
    "memory", ["sinks", *(pytest.param(each, marks=FULL) for each in ("shift", "compressive"))]
)
def test_every_memory_is_read_as_it_is(folder, memory):
    settings = {"model.memory": memory} | ({"model.sinks": 2} if memory == "sinks" else {})
    made = measure_attention(asked(settings))
    assert (made.keys, made.memory) == ((16, 16), memory)
    assert made.row_error < 1e-5
    assert abs(made.leak) < 1e-5
    assert made.apart == (2 if memory == "sinks" else 0)
    for head in made.heads:
        assert sum(head.profile) + (head.first or 0) == pytest.approx(1, abs=1e-3)
        assert len(head.profile) == 16 - made.apart


def test_words_are_told_apart(folder):
    (folder / "mine.txt").write_text("the model reads\na text\n" * 200)
    write_spec(corpus={"name": "mine", "path": "mine.txt", "level": "word"})
    made = measure_attention(replace(ASKED, model=str(finished().path)))
    assert "\n the model reads\n a text\n the" in "".join(made.shown.tokens)


def test_an_architecture_of_transformers_is_read_in_windows(folder):
    settings = {
        "model.kind": "hf",
        "model.architecture": "llama",
        "model.config": TINY["llama"],
    }
    made = measure_attention(asked(settings))
    assert (made.keys, made.regime, made.letters) == ((13, 16), "windows", ())
    assert made.row_error < 1e-5


@pytest.mark.parametrize("bos", [False, True])
def test_a_pretrained_model_gives_what_transformers_returns(folder, bos):
    path = save_model("llama", folder / "model", bos=bos)
    write_spec()
    asked_of = replace(ASKED, model=f"hf:{path}", corpus="mine.txt", attention_length=12, at=50)
    made = measure_attention(replace(asked_of, heads=((2, 3),)))
    assert made.keys == (10, 12)
    assert (made.adds_bos, made.apart) == (bos, 1)
    assert len(made.heads) == 8
    assert made.row_error < 1e-5
    assert abs(made.leak) < 1e-5
    for head in made.heads:
        assert sum(head.profile) == pytest.approx(1 - head.first, abs=1e-3)
    ref = resolve(f"hf:{path}")
    ids = read_text(ref, "mine.txt", None, "all").ids
    model = ref.open(CPU)
    model.network.set_attn_implementation("eager")
    for line, place in zip(made.shown.heads[0].rows, range(50, 54), strict=True):
        seen = int(np.count_nonzero(line))
        window = [256] * bos + ids[place - seen : place].tolist()
        tokens = torch.as_tensor([window])
        with torch.no_grad():
            given = model.network(tokens, output_attentions=True).attentions[1][0, 2, -1]
        np.testing.assert_allclose(line[:seen], given[bos:].flip(-1), rtol=2e-4, atol=1e-6)
        assert 10 <= seen <= 12


@pytest.mark.parametrize("kind", ["qwen3_next", pytest.param("jamba", marks=FULL)])
def test_layers_without_attention_are_named(folder, kind):
    path = save_model(kind, folder / "model")
    write_spec()
    made = measure_attention(
        replace(ASKED, model=f"hf:{path}", corpus="mine.txt", attention_length=12)
    )
    assert made.silent_layers == (1,)
    assert {head.layer for head in made.heads} == {2}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"at": 3}, "--at 3: targets there do not have 16 tokens before them and 4 after"),
        ({"heads": ((2, 1),)}, "--heads: 2.1 found; .* has 1 layers of 2 heads"),
        ({"heads": ((1, 3),)}, "--heads: 1.3 found; .* has 1 layers of 2 heads"),
        ({"heads": tuple((1, n) for n in range(13))}, "--heads: 13 are more than a figure shows"),
        ({"targets": 61}, "--targets: 61 are more than a figure shows; give at most 60"),
        ({"attention_length": 10**6}, "attention length 1,000,000: split all has"),
    ],
)
def test_what_there_is_not_is_refused(folder, changes, problem):
    with pytest.raises(UserError, match=problem):
        measure_attention(asked(**changes))


def test_a_model_without_attention_is_refused(folder):
    with pytest.raises(UserError, match="has no attention"):
        measure_attention(asked({"model.kind": "lstm"}))
    path = save_model("mamba", folder / "model")
    with pytest.raises(UserError, match="returns no attention of it"):
        measure_attention(replace(ASKED, model=f"hf:{path}", corpus="mine.txt"))


def test_learned_positions_are_a_limit(folder):
    settings = {"model.encoding": "al-rfou", "train.recurrence": False}
    with pytest.raises(UserError, match="has 8 positions"):
        measure_attention(asked(settings, attention_length=9))


@pytest.mark.parametrize("settings", [{}, {"train.recurrence": False}])
def test_attention_that_memory_does_not_hold_is_refused(folder, settings, monkeypatch):
    request = asked({**settings, "model.n_head": 2}, attention_length=40)
    queries = 40 if settings else BLOCKS
    monkeypatch.setattr(show_attention, "device_memory", lambda _: 4 * 2 * 40 * queries - 1)
    with pytest.raises(UserError, match="--attention-length 40: the attention of 1 layers of 2"):
        measure_attention(request)
