"""Context losses of a MODEL: computed once, kept in its run, refused where they mean nothing."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.runs.trial import execute_all, finished, plan_of, write_spec, write_text
from txlbench.commands import stored_losses
from txlbench.commands.load_model import export_model, import_model
from txlbench.commands.model_ref import resolve
from txlbench.commands.recl_request import ReclRequest
from txlbench.commands.stored_losses import context_losses_of, losses_of_all
from txlbench.config.base import AttentionSpan, RopeScaling
from txlbench.config.grid import load_experiment
from txlbench.config.run_config import CorpusConfig
from txlbench.data.prepare import prepare
from txlbench.errors import UserError
from txlbench.evaluation import context_losses
from txlbench.evaluation.context_positions import count_windows
from txlbench.records.experiment_directory import ExperimentDirectory

CPU = torch.device("cpu")
ASKED = ReclRequest(groups=(), contexts=(4, 8, 16), tokens=20, device="cpu")


def run_of(settings=None, **top):
    write_spec(settings, **top)
    return finished()


def letters(folder):
    """A corpus of the characters a to h, a the most frequent."""
    (folder / "letters").write_text("abcdefgh" * 300 + "aaab" * 200)
    return {"name": "letters", "path": "letters", "level": "char"}


def losses(reference, request=ASKED, **watched):
    return context_losses_of(str(reference), request, **watched).losses


def alone(model, ids, context, position, span):
    window = torch.as_tensor(ids[position - context : position + 1].astype("int64"))[None]
    with torch.no_grad():
        hidden, _ = model(window[:, :-1], model.initial_state(1, span))
        return model.losses(hidden, window[:, 1:])[0, -1].item()


def refuse(reference, done, total):
    raise AssertionError("computed again")


@pytest.mark.parametrize(
    ("settings", "longest"),
    [
        ({}, None),
        ({"train.recurrence": False, "model.encoding": "shaw"}, None),
        ({"train.recurrence": False, "model.encoding": "al-rfou", "train.loss": "half"}, 8),
        ({"model.encoding": "absolute"}, 8),
        ({"model": {"kind": "lstm", "n_layer": 1, "d_model": 16}}, None),
    ],
    ids=str,
)
def test_losses_are_those_of_the_runs_model_on_its_own_corpus(settings, longest):
    run = run_of(settings)
    found = losses(run.path)
    corpus = prepare(run.read_config().corpus)
    ids, model = corpus.ids("test"), resolve(str(run.path)).load(CPU).model
    expected = [
        [
            alone(model, ids, min(c, longest or c), t, AttentionSpan(mem_len=0))
            for t in found.positions
        ]
        for c in found.contexts
    ]
    np.testing.assert_allclose(found.losses, expected, rtol=0, atol=1e-5)
    assert found.longest == longest
    assert found.contexts.tolist() == [4, 8, 16]
    assert len(found.positions) == 20
    assert (found.corpus, found.split) == (corpus.checksum, "test")
    assert found.settings["corpus"] == "mine"
    assert found.vocabulary == corpus.vocabulary.fingerprint
    half = settings.get("train.loss") == "half"
    assert found.settings["untrained_contexts"] == ([4] if half else [])


def test_they_are_kept_and_not_computed_again():
    run = run_of()
    first = losses(run.path)
    (kept,) = run.losses.iterdir()
    assert kept.suffix == ".npz"
    again = losses(run.path, replace(ASKED, shares=(0.2,), threshold=0.5), progress=refuse)
    assert np.array_equal(again.losses, first.losses)
    assert again.name == str(run.path)
    for changed in (
        {"contexts": (4, 8)},
        {"tokens": 21},
        {"split": "valid"},
        {"attention_length": 3},
    ):
        losses(run.path, replace(ASKED, **changed))
    assert len(list(run.losses.iterdir())) == 5


def test_what_is_kept_needs_no_torch():
    run = run_of()
    losses(run.path)
    code = (
        "import sys\n"
        "from txlbench.commands.stored_losses import context_losses_of\n"
        "from txlbench.commands.recl_request import ReclRequest\n"
        "asked = ReclRequest(groups=(), contexts=(4, 8, 16), tokens=20, device='cpu')\n"
        f"print(context_losses_of({str(run.path)!r}, asked).losses.losses.shape)\n"
        "print(sorted({'torch', 'mlflow', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["(3, 20)", "[]"]


def test_other_weights_have_other_losses():
    run = run_of({"train.eval_interval": 12})
    first = losses(run.path)
    assert losses(run.path, replace(ASKED, checkpoint="last")).model != first.model
    best = torch.load(run.checkpoints / "best.pt", weights_only=True)
    best["model"] = {name: tensor + 0.1 for name, tensor in best["model"].items()}
    torch.save(best, run.checkpoints / "best.pt")
    assert np.abs(losses(run.path).losses - first.losses).max() > 0.01


def test_interrupted_work_continues(monkeypatch):
    run = run_of()
    monkeypatch.setattr(context_losses.torch, "get_num_threads", lambda: 1)
    asked, told = replace(ASKED, batch_size=5), []

    def stop(reference, done, total):
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        losses(run.path, asked, progress=stop)
    found = losses(run.path, asked, progress=lambda _, done, total: told.append((done, total)))
    assert told[0][0] == 10
    assert told[-1][0] == told[-1][1]
    assert [path.suffix for path in run.losses.iterdir()] == [".npz"]
    other = losses(run.path, replace(asked, contexts=(4, 8, 12, 16)))
    shared = np.isin(other.positions, found.positions)
    assert shared.any()
    np.testing.assert_allclose(
        other.losses[[0, 1, 3]][:, shared],
        found.losses[:, np.isin(found.positions, other.positions)],
        rtol=0,
        atol=1e-5,
    )


def test_the_papers_numbers_come_with_the_run():
    write_spec(rows=[{"label": "one", "paper": {"recl_r0.1": 900}}])
    (planned,) = plan_of()
    execute_all([planned])
    planned.directory.write_config(planned.config, {"recl_r0.1": 900}, "one")
    assert context_losses_of(str(planned.directory.path), ASKED).paper == {"recl_r0.1": 900}


def test_a_clamp_length_for_evaluation_counts():
    run = run_of({"evaluate.clamp_len": 3})
    found = losses(run.path)
    corpus = prepare(run.read_config().corpus)
    ids, model = corpus.ids("test"), resolve(str(run.path)).load(CPU).model
    span = AttentionSpan(mem_len=0, clamp_len=3)
    expected = [alone(model, ids, 16, t, span) for t in found.positions]
    np.testing.assert_allclose(found.losses[-1], expected, rtol=0, atol=1e-5)
    assert found.settings["clamp_len"] == 3


# Other people's models


def test_an_exported_model_scores_as_its_run_and_its_losses_are_kept_with_the_corpora(folder):
    run = run_of({"model.encoding": "xl"})
    expected = losses(run.path)
    export_model(resolve(str(run.path)), "hf:out")
    import_model("hf:out", Path("taken"))
    asked = replace(ASKED, corpus="mine.txt", split="test")
    for reference in ("hf:out", "taken"):
        found = losses(reference, asked)
        np.testing.assert_allclose(found.losses, expected.losses, rtol=0, atol=1e-5)
        assert found.name == reference
        losses(reference, asked, progress=refuse)
        with pytest.raises(UserError, match=r"was not trained here; give --corpus$"):
            losses(reference)
    assert len(list((folder / "data" / "losses").iterdir())) == 1
    assert len(list(Path("taken", "losses").iterdir())) == 1


def test_a_text_that_an_imported_model_does_not_know_is_refused(folder):
    run = run_of({"model.encoding": "xl"})
    export_model(resolve(str(run.path)), "hf:out")
    chance = np.random.default_rng(1)
    (folder / "noise").write_bytes(chance.integers(128, 256, 2000).astype(np.uint8).tobytes())
    with pytest.raises(UserError, match=r"hf:out: perplexity .* of 256; wrong vocabulary\?; give"):
        losses("hf:out", replace(ASKED, corpus="noise"))


def test_the_same_run_trained_with_resets_stands_beside():
    write_spec({"train.max_step": 6}, grid={"train.memory_reset": [0.0, 0.5], "train.lr": [0.01]})
    runs = plan_of()
    execute_all(runs)
    plain, resets = (run.directory.path for run in runs)
    found = context_losses_of(str(plain), ASKED)
    assert found.with_resets.name == str(resets)
    assert np.array_equal(found.with_resets.losses, losses(resets).losses)
    assert context_losses_of(str(resets), ASKED).with_resets is None


def test_a_run_of_another_learning_rate_is_not_the_same_trained_with_resets():
    write_spec(
        {"train.max_step": 6},
        rows=[
            {"label": "plain", "set": {"train.lr": 0.02}},
            {"label": "resets", "set": {"train.memory_reset": 0.5}},
        ],
    )
    runs = plan_of()
    execute_all(runs)
    assert context_losses_of(str(runs[0].directory.path), ASKED).with_resets is None


def test_positions_of_a_loss_file_are_taken():
    run = run_of()
    positions = np.array([20, 21, 40, 77])
    asked = replace(ASKED, tokens=None, positions=positions)
    found = losses(run.path, asked)
    assert found.positions.tolist() == positions.tolist()
    everywhere = losses(run.path, replace(ASKED, tokens=80))
    there = np.searchsorted(everywhere.positions, positions)
    assert everywhere.positions[there].tolist() == positions.tolist()
    np.testing.assert_allclose(found.losses, everywhere.losses[:, there], atol=1e-5)
    assert np.array_equal(losses(run.path, asked, progress=refuse).losses, found.losses)


@pytest.mark.parametrize(("positions", "problem"), [([9, 20], "no 16"), ([20, 99999], "beyond")])
def test_positions_that_the_split_lacks_are_refused(positions, problem):
    run = run_of()
    with pytest.raises(UserError, match=problem):
        losses(run.path, replace(ASKED, tokens=None, positions=np.array(positions)))


# What is refused


def test_a_corpus_of_symbols_that_the_model_lacks_is_refused(folder):
    run = run_of(corpus=letters(folder))
    (folder / "other").write_text("abcdefgh" * 500 + "z" * 500)
    with pytest.raises(UserError, match="does not know 'z' of other, and has no <unk>; give a"):
        losses(run.path, replace(ASKED, corpus="other", level="char"))


def test_a_text_is_read_in_the_models_own_symbols(folder):
    """Ids go by frequency, so the same text has other ids in a vocabulary of another text."""
    run = run_of(corpus=letters(folder))
    text = "hgfedcba" * 100 + "hhhhhhaaaa" * 100
    (folder / "other").write_text(text)
    found = losses(run.path, replace(ASKED, corpus="other", level="char"))
    loaded = resolve(str(run.path)).load(CPU)
    known = {symbol: number for number, symbol in enumerate(loaded.ref.capabilities.tokens)}
    test = np.array([known[letter] for letter in text])
    span = AttentionSpan(mem_len=16)
    position = int(found.positions[7])
    assert found.losses[1, 7] == pytest.approx(
        alone(loaded.model, test, 8, position, span), abs=1e-5
    )


def test_contexts_beyond_the_split_and_too_many_tokens_are_refused():
    run = run_of()
    with pytest.raises(UserError, match=r"--contexts: 5000 is beyond the split"):
        losses(run.path, replace(ASKED, contexts=(5000,)))
    with pytest.raises(UserError, match=r"--tokens 9999: only"):
        losses(run.path, replace(ASKED, tokens=9999))
    with pytest.raises(UserError, match=r"--contexts: 8, 4 found"):
        losses(run.path, replace(ASKED, contexts=(8, 4)))
    assert not run.losses.exists()


def test_an_attention_length_is_refused_by_a_model_without_attention():
    run = run_of({"model": {"kind": "qrnn", "n_layer": 1, "d_model": 16}})
    with pytest.raises(UserError, match="--attention-length: qrnn has no attention"):
        losses(run.path, replace(ASKED, attention_length=4))


def test_sinks_are_refused_by_a_model_of_ours_before_anything_is_read():
    run = run_of()
    with pytest.raises(UserError, match="--sinks 2: is of pretrained models, not of"):
        losses(run.path, replace(ASKED, attention_length=4, sinks=2))
    assert not run.losses.exists()


def test_a_run_without_weights_is_refused():
    run = run_of()
    (run.checkpoints / "best.pt").unlink()
    with pytest.raises(UserError, match=r"best\.pt: no such checkpoint; train the run first"):
        losses(run.path)


def test_weights_that_give_no_numbers_are_refused_by_name():
    run = run_of()
    best = torch.load(run.checkpoints / "best.pt", weights_only=True)
    best["model"]["softmax.bias"][:] = float("nan")
    torch.save(best, run.checkpoints / "best.pt")
    with pytest.raises(UserError, match=r"softmax\.bias: NaN or infinite values"):
        losses(run.path)


# The planted corpus


def test_the_optimum_is_a_model_of_planted():
    asked = replace(ASKED, contexts=(32, 96, 160, 224, 288), tokens=4000)
    found = losses("optimum:planted", asked)
    corpus = prepare(CorpusConfig(name="planted"))
    assert (found.corpus, found.vocabulary) == (corpus.checksum, corpus.vocabulary.fingerprint)
    assert np.array_equal(np.bincount(found.positions % 4), [1000] * 4)
    assert (np.diff(found.losses.mean(axis=1))[:3] < -0.3).all()
    assert np.array_equal(found.losses[3], found.losses[4])
    with pytest.raises(UserError, match="optimum:planted: is not of enwiki-sample; drop --corpus"):
        losses("optimum:planted", replace(asked, corpus="enwiki-sample"))


def test_progress_counts_the_windows_of_all_models():
    write_spec({"train.max_step": 6}, grid={"train.lr": [0.01, 0.02]})
    planned = plan_of()
    execute_all(planned)
    runs, seen = [run.directory.path for run in planned], []
    losses_of_all([str(run) for run in runs], ASKED, lambda *line: seen.append(line))
    (total,) = {total for *_, total in seen}
    positions = context_losses_of(str(runs[0]), ASKED).losses.positions
    assert total == 2 * count_windows(np.array(ASKED.contexts), positions)
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert (seen[0][1], seen[-1][1]) == (0, total)
    assert {reference for reference, *_ in seen} == {str(run) for run in runs}


def test_models_on_different_texts_are_refused_before_they_are_read(folder):
    first = run_of()
    write_text(folder / "other.txt", seed=2)
    write_spec(name="second", corpus={"name": "other", "path": "other.txt"})
    second = finished("results/second")
    names = (str(first.path), str(second.path))
    request = replace(ASKED, groups=(names,))
    with pytest.raises(UserError, match=r"is read on test of other, but .* on test of mine"):
        losses_of_all(names, request, refuse)
    apart = replace(ASKED, groups=tuple((name,) for name in names))
    assert len(losses_of_all(names, apart)) == 2


def test_losses_that_memory_does_not_hold_are_refused_with_an_estimate(monkeypatch):
    run = run_of()
    needed = stored_losses.BYTES_OF_A_LOSS * 3 * 20
    monkeypatch.setattr(stored_losses, "memory_limit", lambda: needed - 1)
    with pytest.raises(UserError, match=r"losses of 20 tokens at 3 contexts of up to 16 take at"):
        context_losses_of(str(run.path), ASKED, refuse)
    monkeypatch.setattr(stored_losses, "memory_limit", lambda: needed)
    assert losses(run.path).losses.shape == (3, 20)


def test_windows_scale_rotary_positions_as_the_rows_evaluation_does():
    """Rows that differ in their evaluation share a run; each is read as it is evaluated."""
    kinds = [None, "pi", "yarn"]
    rows = [{"label": str(k), "set": {"evaluate.rope_scaling": k}} for k in kinds]
    # Large weights, so that little training leaves attention that tells keys apart.
    settings = {"train.recurrence": False, "model.init_std": 0.5}
    write_spec({"model.encoding": "rope", **settings}, rows=rows)
    execute_all(plan_of())
    ExperimentDirectory(Path("results/trial")).write_spec(load_experiment(Path("spec.yaml")))
    plain, pi, yarn = (losses(f"trial/{kind}") for kind in kinds)
    assert "rope_scaling" not in plain.settings
    assert pi.settings["rope_scaling"] == "pi by 2"
    assert np.abs(pi.losses - plain.losses).max() > 1e-3
    assert np.abs(pi.losses - yarn.losses).max() > 1e-4
    model = resolve("trial/pi").load(CPU).model
    ids = prepare(CorpusConfig(name="mine", path="mine.txt")).ids("test")
    span = AttentionSpan(mem_len=16, rope=RopeScaling(kind="pi", factor=2.0, trained=8))
    for row, context in enumerate((4, 8, 16)):
        found = pi.losses[row, 3]
        assert found == pytest.approx(alone(model, ids, context, pi.positions[3], span), abs=1e-5)
    within = replace(ASKED, contexts=(4, 8))
    np.testing.assert_array_equal(
        losses("trial/pi", within).losses, losses("trial/None", within).losses
    )
