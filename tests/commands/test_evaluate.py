"""`eval` on runs and imported weights: the numbers of the evaluator, and clear refusals."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from tests.models.convert.scored import GOLDEN, golden
from tests.runs.trial import execute_all, finished, lines, plan_of, write_spec
from txlbench.commands.evaluate import EvalRequest, evaluate, seed_means
from txlbench.commands.load_model import export_model, import_model
from txlbench.commands.model_ref import resolve
from txlbench.commands.recl_request import ReclRequest
from txlbench.commands.stored_losses import context_losses_of
from txlbench.config.measurements import segments_of
from txlbench.errors import UserError

CPU = torch.device("cpu")


def run_of(settings=None, **top):
    write_spec(settings, **top)
    return finished()


def asked(run, **settings):
    (answer,) = evaluate(EvalRequest(str(run.path), device="cpu", **settings))
    return answer


def test_what_was_scored_is_named():
    Path("other.txt").write_text("another text of some words " * 20)
    run = run_of()
    assert asked(run).text.place == "test of mine"
    assert asked(run, corpus="other.txt").text.place == "all of other"


def test_a_run_scores_what_its_own_evaluation_scored():
    run = run_of({"evaluate.tokens": None})
    summary = run.read_summary().content["results"][0]
    assert asked(run, batch_size=4).score.loss == pytest.approx(summary["init"]["loss"], abs=1e-6)
    lengths = evaluate(
        EvalRequest(str(run.path), device="cpu", batch_size=4, attention_lengths=(4, 8))
    )
    for answer in lengths:
        point = next(
            each
            for each in summary["sweep"]
            if (each["split"], each["attention_length"])
            == ("test", answer.measurement.attention_length)
        )
        assert answer.score.loss == pytest.approx(point["loss"], abs=1e-6)


def test_without_recurrence_lengths_are_sliding_windows():
    run = run_of({"train.recurrence": False, "evaluate.tokens": None})
    (answer,) = evaluate(
        EvalRequest(str(run.path), device="cpu", batch_size=4, attention_lengths=(8,))
    )
    assert answer.measurement.regime == "windows"
    sweep = run.read_summary().content["results"][0]["sweep"]
    point = next(e for e in sweep if (e["split"], e["attention_length"]) == ("test", 8))
    assert answer.score.loss == pytest.approx(point["loss"], abs=1e-6)


def test_exact_gives_one_number_at_every_batch_size():
    run = run_of({"model.n_layer": 2})
    losses = [
        asked(run, batch_size=size, exact=True, whole=True).score.loss for size in (1, 3, 10, 64)
    ]
    assert max(losses) - min(losses) < 1e-6
    cold = [asked(run, batch_size=size, whole=True).score.loss for size in (1, 64)]
    assert abs(cold[0] - cold[1]) > 1e-5  # else exactness would show nothing


def test_losses_are_in_order_and_their_mean_is_the_loss(tmp_path):
    run = run_of()
    answer = asked(run, batch_size=3, losses=tmp_path / "out.npz", whole=True)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as file:
        losses, positions = file["losses"], file["positions"]
    assert losses.dtype == np.float32
    assert positions.dtype == np.int64
    assert positions.tolist() == list(range(1, answer.score.tokens + 1))
    assert losses.mean(dtype=np.float64) == pytest.approx(answer.score.loss, abs=1e-7)


def test_tokens_of_ones_own_are_scored_all_but_the_first(tmp_path):
    run = run_of()
    ids = np.frombuffer(Path("mine.txt").read_bytes()[-200:], dtype=np.uint8)
    np.save(tmp_path / "ids.npy", ids)
    answer = asked(run, tokens=tmp_path / "ids.npy")
    assert answer.score.tokens == 199
    assert answer.text.units == ("bpc", "ppl")


def test_hugging_face_weights_give_hugging_faces_losses(tmp_path):
    for case, memory in (("shared", "empty"), ("shared", "zeros"), ("own", "empty")):
        run, _ = import_model(f"hf:{GOLDEN / case}", tmp_path / f"{case}-{memory}")
        given = np.load(GOLDEN / case / "losses.npz")
        tokens, cuts = given["tokens"], given["cuts"]
        assert len(set(cuts[:-1].tolist())) == 1  # equal segments, a short one at the end
        for row, expected in zip(tokens, golden(case, memory), strict=True):
            np.save(tmp_path / "ids.npy", row)
            asked(
                run,
                tokens=tmp_path / "ids.npy",
                batch_size=1,
                tgt_len=int(cuts[0]),
                zero_memory=memory == "zeros",
                losses=tmp_path / "out.npz",
            )
            np.testing.assert_allclose(np.load(tmp_path / "out.npz")["losses"], expected, atol=1e-4)


def test_import_export_import_is_exact(tmp_path):
    run, _ = import_model(f"hf:{GOLDEN / 'own'}", tmp_path / "one")
    export_model(resolve(str(run.path)), f"hf:{tmp_path / 'folder'}")
    again, _ = import_model(f"hf:{tmp_path / 'folder'}", tmp_path / "two")
    one, two = (resolve(str(each.path)).load(CPU) for each in (run, again))
    assert one.settings.model == two.settings.model
    for each in (one, two):
        assert segments_of(each.settings).memory == 40
    for name, weight in one.model.state_dict().items():
        assert torch.equal(weight, two.model.state_dict()[name])


def test_a_run_of_our_own_goes_out_and_comes_back(tmp_path):
    run = run_of()
    export_model(resolve(str(run.path)), f"hf:{tmp_path / 'folder'}")
    ours, theirs = asked(run, whole=True, batch_size=10).score.loss, None
    np.save(tmp_path / "ids.npy", load_ids(run))
    (answer,) = evaluate(
        EvalRequest(f"hf:{tmp_path / 'folder'}", tokens=tmp_path / "ids.npy", device="cpu")
    )
    theirs = answer.score.loss
    assert theirs == pytest.approx(ours, abs=1e-6)


def load_ids(run):
    from txlbench.data.prepare import prepare

    return np.array(prepare(run.read_config().corpus).ids("test"))


def test_an_imported_model_that_knows_nothing_of_its_ids_is_called_out(tmp_path):
    run, _ = import_model(f"hf:{GOLDEN / 'plain'}", tmp_path / "plain")
    np.save(tmp_path / "ids.npy", np.load(GOLDEN / "plain" / "losses.npz")["tokens"][0])
    answer = asked(run, tokens=tmp_path / "ids.npy")
    assert "wrong vocabulary?" in answer.suspicion
    assert asked(run_of(), tokens=tmp_path / "ids.npy").suspicion is None  # trained here


def test_an_imported_model_stops_on_a_corpus_it_knows_nothing_of(tmp_path):
    run, converted = import_model(f"hf:{GOLDEN / 'plain'}", tmp_path / "plain")
    symbols = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    text = symbols[: converted.vocabulary_size]
    Path("chars.txt").write_text(text * 40)
    question = EvalRequest(str(run.path), corpus="chars.txt", level="char", device="cpu")
    with pytest.raises(UserError, match=r"wrong vocabulary\?"):
        evaluate(question)


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((2, 3), dtype=np.int64), "1-D"),
        (np.zeros(5), "1-D array of integers"),
        (np.array([0, 256]), "0 to 255"),
        (np.array([-1, 3]), "0 to 255"),
        (np.array([3]), "nothing to predict"),
        (np.array([], dtype=np.int64), "nothing to predict"),
        (np.array([{}], dtype=object), "not an .npy file of numbers"),
    ],
)
def test_token_files_that_cannot_be_scored_are_refused(tmp_path, array, said):
    run = run_of()
    np.save(tmp_path / "ids.npy", array, allow_pickle=True)
    with pytest.raises(UserError, match=said) as refused:
        asked(run, tokens=tmp_path / "ids.npy")
    assert "\n" not in str(refused.value)


def char_run():
    """A character model of the trial's text."""
    return run_of({"corpus.level": "char", "train.max_step": 40})


def on_text(run, text, **settings):
    Path("other.txt").write_text(text)
    return asked(run, corpus="other.txt", level="char", **settings).score.loss


def test_another_text_is_read_in_the_models_own_symbols():
    """Ids go by frequency, so those of another text mean other characters."""
    run = char_run()
    text = Path("mine.txt").read_text()
    same = on_text(run, text, split="test")
    own = asked(run, whole=True).score.loss
    assert same == pytest.approx(own, abs=1e-6)
    letters = str.maketrans("aelt", "leta")
    assert (
        on_text(run, text.translate(letters), split="test") > same + 0.1
    )  # by frequency they are equal


def test_a_text_with_symbols_the_model_does_not_know_is_refused():
    run = char_run()
    with pytest.raises(UserError, match="does not know '#'"):
        on_text(run, Path("mine.txt").read_text() + "#" * 300)
    words = run_of({"corpus.level": "word"})
    with pytest.raises(UserError, match=r"--level byte: .* reads words; use word"):
        asked(words, corpus="mine.txt", level="byte")


def test_options_that_say_nothing_are_refused():
    run = run_of()
    with pytest.raises(UserError, match="--level"):
        asked(run, level="char")
    with pytest.raises(UserError, match="--no-same-length"):
        asked(run, attention_lengths=(4,), same_length=False)
    assert len(evaluate(EvalRequest(str(run.path), device="cpu", attention_lengths=(4, 4)))) == 1


def test_export_does_not_write_where_a_file_is(tmp_path):
    run = run_of()
    with pytest.raises(UserError, match="is a file"):
        export_model(resolve(str(run.path)), "hf:mine.txt")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"attention_lengths": (4,)}, "has no attention"),
        ({"exact": True}, "without limit"),
        ({"zero_memory": True}, "is for attention"),
    ],
)
def test_what_a_recurrent_model_cannot_do_is_refused(settings, said):
    run = run_of({"model": {"kind": "lstm", "n_layer": 1, "d_model": 8}})
    with pytest.raises(UserError, match=said):
        asked(run, **settings)


def test_an_imported_run_tells_its_state_and_source(tmp_path):
    run, converted = import_model(f"hf:{GOLDEN / 'plain'}", tmp_path / "plain")
    assert run.state == "imported"
    config = run.read_imported()
    assert (config.corpus, config.train) == (None, None)
    assert config.source == f"hf:{GOLDEN / 'plain'}"
    assert config.vocabulary_size == converted.vocabulary_size
    assert json.loads((run.path / "status.json").read_text())["state"] == "imported"


def test_import_writes_over_nothing(tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        import_model(f"hf:{GOLDEN / 'plain'}", tmp_path / "taken")
    with pytest.raises(UserError, match="not a source of weights"):
        import_model(str(GOLDEN / "plain"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


# Another text, other symbols


CREAM = "crème à côté café\n"


def cream_run():
    """A character model of accents; `!` in valid and test only, so that `<unk>` exists."""
    Path("cream.txt").write_text(CREAM * 270)
    Path("odd.txt").write_text(CREAM * 14 + "!!\n")
    corpus = {"name": "cream", "path": "cream.txt", "level": "char"}
    return run_of(
        {"train.max_step": 60, "train.recurrence": True},
        corpus={**corpus, "valid": "odd.txt", "test": "odd.txt"},
    )


def test_a_text_is_read_at_the_models_level_with_its_symbols_as_a_whole():
    run = cream_run()
    Path("mine.txt").write_text("crème à côté café\n" * 50)
    result = asked(run, corpus="mine.txt")
    assert (result.score.tokens, result.text.split, result.text.level) == (899, "all", "char")
    assert result.measurement.split == "all"
    assert result.text.units == ("bpc",)
    assert result.text.unknown == 0
    train = asked(run, corpus="mine.txt", split="train")
    assert train.score.tokens == 809  # as characters; as bytes it would be 1,034
    own = asked(run, split="train", whole=True).score.loss
    assert result.score.loss == pytest.approx(own, abs=0.2)
    for level in ("byte", "word"):
        with pytest.raises(UserError, match=f"--level {level}: .* reads chars; use char"):
            asked(run, corpus="mine.txt", level=level)


def test_a_corpus_of_another_level_is_refused():
    run = run_of({"corpus.level": "word"})
    with pytest.raises(UserError, match="reads words, enwiki-sample is a corpus of bytes"):
        asked(run, corpus="enwiki-sample")
    with pytest.raises(UserError, match="reads words, enwiki-sample is a corpus of bytes"):
        context_losses_of(str(run.path), ReclRequest((), corpus="enwiki-sample", device="cpu"))


def test_unknown_tokens_are_counted_where_the_loss_is_told():
    known = [f"w{number}" for number in range(12)]
    train = " ".join(known) + " <unk>\n"
    Path("train.txt").write_text(train * 200)
    Path("held.txt").write_text(train * 20)
    corpus = {"name": "words", "path": "train.txt", "level": "word"}
    run = run_of(corpus={**corpus, "valid": "held.txt", "test": "held.txt"})
    Path("other.txt").write_text("o1 o2 o3 o4 o5 o6 w1\n" * 100)
    result = asked(run, corpus="other.txt")
    assert (result.text.unknown, len(result.text.ids)) == (600, 800)
    assert "600 of 800 tokens (75.0%) of other are <unk>" in result.text.warning
    own = asked(run, whole=True)
    assert (own.text.unknown, len(own.text.ids)) == (20, 280)


def test_the_text_that_a_run_was_trained_on_must_still_be_the_same():
    run = run_of()
    asked(run)
    text = Path("mine.txt").read_text()
    Path("mine.txt").write_text("0" * len(text))
    with pytest.raises(UserError, match=r"mine\.txt: is another text than .* was trained on") as e:
        asked(run)
    assert "give the new text with --corpus" in str(e.value)
    assert asked(run, corpus="mine.txt").score.tokens == len(text) - 1
    Path("mine.txt").write_text(text)
    asked(run)


def test_last_means_the_averaged_weights_that_were_validated():
    run = run_of({"train.average_from": 0.3, "train.eval_interval": 12})
    validated = [line["valid_loss"] for line in lines(run) if "valid_loss" in line]
    settings = {"split": "valid", "whole": True, "checkpoint": "last"}
    best, last = (
        resolve(str(run.path), name).load(CPU).model.state_dict() for name in ("best", "last")
    )
    assert all(torch.equal(best[name], last[name]) for name in best)
    plain = torch.load(run.checkpoints / "last.pt", weights_only=True)["model"]
    assert not all(torch.equal(best[name], plain[name]) for name in best)
    assert len(validated) == 1
    assert (
        asked(run, **settings).score.loss
        == asked(run, **settings | {"checkpoint": "best"}).score.loss
    )


def test_attention_lengths_beyond_the_split_are_refused():
    run = run_of()
    tokens = len(load_ids(run))
    asked(run, attention_lengths=(tokens - 1,))
    with pytest.raises(UserError, match=f"attention length {tokens:,}: split test has"):
        asked(run, attention_lengths=(tokens,))


def test_a_row_of_several_seeds_gives_each_and_their_mean():
    write_spec(seeds=[1, 2, 3])
    runs = plan_of()
    execute_all(runs)
    directory = runs[0].directory.path.parents[1]
    (directory / "spec.yaml").write_text(Path("spec.yaml").read_text())
    results = evaluate(EvalRequest("trial/trial", device="cpu"))
    expected = [run.directory.read_summary().content["results"][0]["init"]["loss"] for run in runs]
    assert [each.score.loss for each in results] == pytest.approx(expected, abs=1e-6)
    assert [each.model for each in results] == [f"trial/{run.id}" for run in runs]
    (mean,) = seed_means(results)
    bits = np.array(expected) / np.log(2)
    assert mean.estimate.n == 3
    assert mean.estimate.mean == pytest.approx(bits.mean())
    assert mean.estimate.half_width == pytest.approx(4.302653 * bits.std(ddof=1) / 3**0.5, rel=1e-5)
    assert seed_means(results[:1]) == []
    with pytest.raises(UserError, match="3 passes were asked for"):
        evaluate(EvalRequest("trial/trial", device="cpu", losses=Path("x.npz")))


def test_runs_beside_experiments_are_found_by_their_place_under_results():
    import_model(f"hf:{GOLDEN / 'plain'}", Path("results/imported/again"))
    assert resolve("imported/again").reference == "imported/again"


def test_an_imported_run_of_an_earlier_version_is_read():
    run, _ = import_model(f"hf:{GOLDEN / 'shared'}", Path("results/imported/one"))
    path = run.path / "config.yaml"
    content = yaml.safe_load(path.read_text())
    for key in ("clamp_len", "same_length"):
        content["evaluate"][key] = content["model"].pop(key)
    for key in set(content["evaluate"]) - {"tgt_len", "mem_len", "clamp_len", "same_length"}:
        del content["evaluate"][key]
    content["evaluate"]["tgt_len"] = 64
    path.write_text(yaml.safe_dump(content))
    config = run.read_imported()
    assert (config.model.clamp_len, config.model.same_length) == (30, True)
    assert (config.tgt_len, config.memory) == (64, 40)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"model.encoding": "al-rfou"}, "al-rfou has no memory, as its positions begin anew"),
        ({"model.encoding": "absolute"}, "absolute has no memory"),
        ({"model.kind": "lstm"}, "lstm has no memory but a state, which is carried on"),
        ({"model.encoding": "rope"}, None),
    ],
)
def test_memory_of_a_model_that_has_none_is_told(settings, said):
    run = run_of({**settings, "train.recurrence": False})
    assert asked(run).suspicion is None
    assert asked(run, mem_len=0).suspicion is None
    found = asked(run, mem_len=8).suspicion
    assert found is None if said is None else said in found


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_keys_and_values_can_be_kept_in_16_bits(precision):
    run = run_of()
    exact, got = asked(run).score, asked(run, precision=precision).score
    assert (exact.dtype, got.dtype) == ("fp32", precision)
    assert 0 < abs(got.loss - exact.loss) < 0.002


def test_a_model_without_keys_refuses_16_bits():
    run = run_of({"model.kind": "lstm"})
    with pytest.raises(UserError, match="--precision fp16: is of keys and values"):
        asked(run, precision="fp16")
