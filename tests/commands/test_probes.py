"""Probes of models that were trained: equal to windows fed alone, kept, and refused in their place.

`TINY` models of one step stand for any: what is held is which tokens they read.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.models.architectures.tiny import TINY
from tests.models.pretrained.architectures import save_model
from tests.runs.trial import finished, write_spec
from txlbench.commands import probe_pass
from txlbench.commands.model_ref import resolve
from txlbench.commands.probe_request import ProbeRequest
from txlbench.commands.probes import measure_probes, run_probe
from txlbench.commands.texts import read_text
from txlbench.config.base import AttentionSpan
from txlbench.errors import UserError
from txlbench.evaluation.context_losses import PartialLosses
from txlbench.models.pretrained.visible_keys import VisibleKeys

CPU = torch.device("cpu")
ASKED = ProbeRequest(
    groups=(("results/trial/runs/x",),),
    contexts=(6, 20),
    tokens=60,
    changes=("reverse", "rare"),
    lengths=(4, 9),
    texts=12,
    split="all",
    device="cpu",
    command="typed",
)


def trained(settings=None, **top):
    write_spec(settings, **top)
    return str(finished().path)


def asked(*models, **changes):
    return replace(ASKED, groups=(models,), **changes)


def alone(model, window, span):
    """The losses of a window's tokens, fed in one piece, and whether each was the likeliest."""
    tokens = torch.as_tensor(np.asarray(window, dtype=np.int64))[None]
    with torch.no_grad():
        hidden, _ = model(tokens[:, :-1], model.initial_state(1, span))
        losses = model.losses(hidden, tokens[:, 1:])[0].double()
        hits = model.log_probs(hidden[0]).argmax(-1) == tokens[0, 1:]
    return losses.numpy(), hits.numpy()


def mean_of(model, windows, span):
    return float(np.mean([alone(model, each, span)[0][-1] for each in windows]))


KINDS = {
    "xl": {},
    "lstm": {"model.kind": "lstm"},
    "llama": {
        "model.kind": "hf",
        "model.architecture": "llama",
        "model.config": TINY["llama"],
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_number_is_that_of_windows_fed_alone(folder, kind):
    model = trained(KINDS[kind])
    ref = resolve(model)
    (result,) = measure_probes(asked(model)).results
    ids, network = read_text(ref, None, None, "all").ids.astype(np.int64), ref.open(CPU)
    positions, span = ASKED.positions_in(len(ids), 1).array, AttentionSpan(mem_len=20)
    whole = [ids[p - 20 : p + 1] for p in positions]
    turned = [np.concatenate([w[:14][::-1], w[14:]]) for w in whole]
    full, cut, changed = (
        mean_of(network, each, span) for each in (whole, [w[14:] for w in whole], turned)
    )
    (far,) = result.far
    assert result.full.value == pytest.approx(full, abs=2e-6)
    assert far.worth.value == pytest.approx(cut - full, abs=4e-6)
    assert [each.change for each in far.changes] == ["reverse", "rare"]
    assert far.changes[0].cost.value == pytest.approx(changed - full, abs=4e-6)
    for point in result.forgetting.points:
        size, starts = point.length, np.arange(12) * (len(ids) // 12)
        right, nats = [], []
        for index, start in enumerate(starts):
            for kind_of, first in enumerate((start, starts[(index + 6) % 12])):
                window = np.concatenate([ids[first:][:size], ids[start:][:size]])
                losses, hits = alone(network, window, AttentionSpan(mem_len=2 * size))
                scored = slice(size + size // 2 - 1, None)
                right.append((kind_of, hits[scored].mean()))
                nats.append((kind_of, losses[scored].mean()))
        for kind_of, found in enumerate((point.copy_accuracy, point.other_accuracy)):
            assert found.value == pytest.approx(np.mean([v for k, v in right if k == kind_of]))
        for kind_of, found in enumerate((point.copy_loss, point.other_loss)):
            mean = np.mean([v for k, v in nats if k == kind_of])
            assert found.value == pytest.approx(mean, abs=2e-6)


def test_a_cache_of_our_own_is_the_attention_length(folder):
    model = trained()
    (result,) = measure_probes(asked(model, probes=("cache",))).results
    ids, network = read_text(resolve(model), None, None, "all").ids, resolve(model).open(CPU)
    windows = [ids[p - 20 : p + 1] for p in ASKED.positions_in(len(ids), 1).array]
    near = mean_of(network, windows, AttentionSpan(mem_len=6, same_length=True))
    full = mean_of(network, windows, AttentionSpan(mem_len=20))
    (cache,) = result.evictions
    assert cache.cost.value == pytest.approx(near - full, abs=4e-6)
    assert cache.saved is None
    assert result.missing[0].measure == "sinks"


def test_sinks_of_a_pretrained_model_take_the_place_of_the_newest_keys(folder, tmp_path):
    save_model("llama", tmp_path / "llama", bos=True)
    name = f"hf:{tmp_path / 'llama'}"
    Path("mine.txt").write_text("the state of a memory is read once, then again. " * 40)
    request = asked(name, corpus="mine.txt", probes=("cache", "forgetting"), kept_sinks=2)
    (result,) = measure_probes(request).results
    ref = resolve(name)
    ids, model = read_text(ref, "mine.txt", None, "all").ids, ref.open(CPU)
    windows = [ids[p - 20 : p + 1] for p in request.positions_in(len(ids), 1).array]
    tokens = torch.as_tensor(np.stack(windows).astype(np.int64))
    plain, kept = (
        model.seeing(keys).token_losses(tokens)[:, -1].double().mean().item()
        for keys in (VisibleKeys(6), VisibleKeys(4, 2))
    )
    (cache,) = result.evictions
    assert cache.saved.value == pytest.approx(plain - kept, abs=4e-6)
    losses, hits = model.at(np.array([4, 8])).token_predictions(tokens[:3, :10])
    for row, column in np.ndindex(3, 9):
        scored = column in (4, 8)
        choice = model.next_logits(tokens[row : row + 1, : column + 1]).argmax()
        assert losses[row, column].isnan() != scored
        assert hits[row, column] == (scored and choice == tokens[row, column + 1])
    assert len(result.forgetting.points) == 2
    assert {each.measure for each in result.missing} <= {"intervals"}


def test_what_was_read_is_not_read_again(folder, monkeypatch):
    model = trained()
    request, reported = asked(model), []
    first = measure_probes(request)
    monkeypatch.setattr(probe_pass, "window_model", lambda *_: pytest.fail("read again"))
    again = measure_probes(request, lambda *each: reported.append(each))
    assert again == first
    done = [each[1] for each in reported]
    assert done == sorted(done)
    assert done[-1] <= reported[-1][2]


def test_a_record_is_written_with_a_page_that_begins_in_words(folder):
    model = trained()
    published = run_probe(asked(model, out=Path("out")))
    assert published.path == Path("out/probe.json")
    page = Path("out/probe.html").read_text()
    assert page.index("What do these models do with far context?") < page.index("<table")
    assert page.index("No text better than chance") < page.index("<table")


def test_a_model_without_attention_has_no_cache(folder):
    (result,) = measure_probes(asked(trained(KINDS["lstm"]), probes=("cache",))).results
    assert not result.evictions
    assert result.missing[0].measure == "cache eviction"


def test_positions_that_restart_limit_every_probe(folder):
    """Trained up to 8 tokens: the nearest 6 of 8 stay, texts of 9 cannot be recalled."""
    model = trained({"model.encoding": "absolute", "train.recurrence": False})
    (result,) = measure_probes(asked(model)).results
    assert result.context == 8
    assert [point.length for point in result.forgetting.points] == [4]
    missing = {each.measure: each.reason for each in result.missing}
    assert missing["recall of 9 tokens"] == "the model can use 8 tokens only"
    (result,) = measure_probes(asked(model, contexts=(6, 10, 20))).results
    assert [far.near for far in result.far] == [6]
    assert "contexts beyond 8" in {each.measure for each in result.missing}


def test_a_text_too_short_for_a_probe_says_so_in_its_place(folder):
    model = trained()
    (result,) = measure_probes(
        asked(model, lengths=(4, 2000), changes=("other",), contexts=(6, 600), tokens=20)
    ).results
    missing = {each.measure: each.reason for each in result.missing}
    assert "texts, and 10 are needed" in missing["recall of 2000 tokens"]
    assert "has no other 600" in missing["other beyond 6 tokens"]
    assert "too few tokens: 20" in missing["intervals"]


def test_a_text_shorter_than_the_context_still_tells_of_recall(folder):
    model = trained()
    (result,) = measure_probes(asked(model, contexts=(6, 90_000), tokens=None)).results
    assert result.forgetting is not None
    assert [each.measure for each in result.missing] == ["far context and caches"]
    with pytest.raises(UserError, match="90000 is beyond the split"):
        measure_probes(asked(model, contexts=(6, 90_000), tokens=None, probes=("far",)))
    (result,) = measure_probes(asked(model, contexts=(6, 20), tokens=None, split="test")).results
    assert result.tokens == 81


def test_own_memory_is_that_of_the_evaluation(folder):
    record = measure_probes(asked(trained(), own_memory=True, probes=("forgetting",)))
    (source,) = record.models.values()
    assert source.settings["recall_attention_length"] == 9


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"changes": ("swap",)}, "--changes: 'swap' found"),
        ({"probes": ("near",)}, "--probes: 'near' found; give some of far, forgetting, cache"),
        ({"contexts": (6,)}, "--contexts: 6 alone; give what is kept"),
    ],
)
def test_requests_that_make_no_sense(changes, found):
    with pytest.raises(UserError, match=found):
        asked("x", **changes)


def test_a_loss_file_is_no_model(folder):
    with pytest.raises(UserError, match=r"a\.npz: is a loss file, and probes read the model"):
        measure_probes(asked("a.npz"))


def test_losses_that_another_process_is_writing_end_the_call(folder):
    """That is no property of the model, and must not be noted as one."""
    model = trained()
    request = asked(model, probes=("forgetting",))
    measure_probes(request)
    (path, *_) = sorted(resolve(model).losses.glob("probe-*.f4"))
    with PartialLosses(path), pytest.raises(UserError, match="another process is computing these"):
        measure_probes(request)
