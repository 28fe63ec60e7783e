"""`recl` from what the user calls its models to what is written of them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.commands.loss_files import CONTEXTS, save
from tests.runs.trial import execute_all, plan_of, write_spec, write_text
from txlbench.commands import recl
from txlbench.commands.recl import identity, read_groups, recl_record, run_recl
from txlbench.commands.recl_request import DEFAULT_CONTEXTS, ReclRequest, Subject
from txlbench.errors import UserError
from txlbench.records.loss_file import read_loss_file


@pytest.fixture(autouse=True)
def files(folder):
    save(Path("a.npz"), seed=1)
    save(Path("b.npz"), seed=2, reach=200)


def refuse(reference, request):
    raise AssertionError(f"{reference} is a loss file")


def request(*groups, **changes):
    return ReclRequest(groups or (("a.npz", "b.npz"),), command="txlbench recl", **changes)


def record(*groups, **changes):
    asked = request(*groups, **changes)
    return recl_record(read_groups(asked, refuse), asked).content


def titles(*groups):
    return [[each.title for each in group] for group in read_groups(request(*groups), refuse)]


def test_what_recl_json_holds():
    found = record()
    assert found["schema"] == "txlbench.recl/1"
    assert found["threshold"] == 0.01
    assert found["contexts"] == list(CONTEXTS)
    (group,) = found["groups"]
    assert group["models"] == ["a", "b"]
    above = {(line["model"], line["r"]): line["recl_above_null"] for line in group["results"]}
    assert above == {("a", r): 300 for r in (0.1, 0.5, 1.0)} | {
        ("b", r): 200 for r in (0.1, 0.5, 1.0)
    }


def test_listing_a_model_twice_changes_nothing():
    expected = record(("a.npz", "b.npz"))["groups"]
    assert record(("a.npz", "b.npz", "a.npz"))["groups"] == expected
    assert record(("a.npz", "b.npz", "./a.npz"))["groups"] == expected
    assert record(("a.npz", "b.npz", str(Path("a.npz").resolve())))["groups"] == expected


def test_a_copy_of_the_same_weights_is_the_same_model():
    for name in ("one", "two"):
        save(Path(f"{name}.npz"), seed=1, model="ff", name=name)
    save(Path("three.npz"), seed=2, model="ff", name="three")
    assert titles(("one.npz", "two.npz", "three.npz")) == [["one", "three"]]


def test_models_come_in_the_order_given():
    assert titles(("b.npz", "a.npz"), ("a.npz",)) == [["b", "a"], ["a"]]


def test_names_tell_models_apart():
    save(Path("x/losses.npz"), seed=3)
    save(Path("y/losses.npz"), seed=4)
    save(Path("z/losses.npz"), seed=5, name="Transformer")
    expected = [["x/losses", "y/losses", "Transformer"]]
    assert titles(("x/losses.npz", "y/losses.npz", "z/losses.npz")) == expected
    save(Path("u/losses.npz"), seed=6, name="Transformer")
    assert titles(("z/losses.npz", "u/losses.npz")) == [["z/losses", "u/losses"]]


@pytest.mark.parametrize("name", ["../x", "<script>alert(1)</script>", "org/model"])
def test_a_name_in_a_file_is_shown_whole(name):
    save(Path("c.npz"), seed=3, name=name)
    save(Path("d/x.npz"), seed=4)
    assert titles(("c.npz", "d/x.npz")) == [[name, "x"]]


def test_groups_share_names_and_are_measured_apart():
    found = record(("a.npz", "b.npz"), ("b.npz",))
    assert list(found["models"]) == ["a", "b"]
    assert [group["models"] for group in found["groups"]] == [["a", "b"], ["b"]]
    assert found["groups"][1] == record(("b.npz",))["groups"][0]


def test_contexts_and_tokens_choose_from_a_file():
    found = record(contexts=(100, 300), tokens=800)
    assert found["contexts"] == [100, 300]
    assert found["groups"][0]["tokens"] == 800


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"contexts": (100, 250)}, "no losses at contexts 250"),
        ({"tokens": 1001}, "1,000 tokens, but 1,001 were asked for"),
        ({"split": "valid"}, "split 'test' found"),
        ({"tokens": 700}, "too few tokens"),
    ],
)
def test_what_a_file_does_not_have(changes, words):
    with pytest.raises(UserError, match=words):
        record(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"positions": 500 + np.arange(1000)}, "c.npz: 1,000 of 1,000 positions differ"),
        ({"contexts": np.array([1, 2, 3, 4])}, "c.npz: contexts 1, 2, 3, 4, but 100, 200"),
        ({"split": "valid"}, "c.npz: split 'valid', but 'test' in a.npz"),
    ],
)
def test_models_of_a_group_are_scored_alike(changes, words):
    save(Path("c.npz"), **changes)
    with pytest.raises(UserError, match=words):
        record(("a.npz", "c.npz"))


def test_groups_may_be_scored_on_different_tokens():
    save(Path("c.npz"), positions=500 + np.arange(1000))
    assert len(record(("a.npz",), ("c.npz",))["groups"]) == 2


def test_one_context_is_no_walk():
    save(Path("c.npz"), contexts=np.array([100]), losses=np.ones((1, 1000)))
    with pytest.raises(UserError, match=r"c.npz: one context, 100"):
        record(("c.npz",))


def test_models_that_are_no_files_are_asked_for_once_with_the_files_contexts(monkeypatch):
    asked = []

    def losses_of_all(references, request, progress, check):
        asked.extend((name, request.contexts) for name in references)
        file = replace(read_loss_file(Path("b.npz")), path=None)
        return {name: Subject(name, file) for name in references}

    monkeypatch.setattr(recl, "losses_of_all", losses_of_all)
    groups = read_groups(request(("run/x", "a.npz"), ("run/x",)))
    assert asked == [("run/x", CONTEXTS)]
    assert [[each.title for each in group] for group in groups] == [["x", "a"], ["x"]]
    asked.clear()
    read_groups(request(("run/x",)))
    assert asked == [("run/x", DEFAULT_CONTEXTS)] == [("run/x", tuple(range(100, 1001, 100)))]


def test_models_are_scored_at_the_positions_of_the_files_beside_them(monkeypatch):
    seen = []

    def losses_of_all(references, asked, progress, check):
        seen.append((asked.contexts, asked.positions.tolist(), asked.split))
        return {name: Subject(name, read_loss_file(Path("b.npz"))) for name in references}

    monkeypatch.setattr(recl, "losses_of_all", losses_of_all)
    read_groups(request(("a.npz", "some/run")))
    assert seen == [(CONTEXTS, list(range(2000, 3000)), "test")]


@pytest.mark.parametrize(
    "options", [{"corpus": "wt103"}, {"level": "word"}, {"attention_length": 4}, {"batch_size": 2}]
)
def test_what_is_asked_of_models_is_refused_where_there_are_only_files(options):
    with pytest.raises(UserError, match="is of models, not of loss files"):
        record(**options)


@pytest.mark.parametrize("threshold", [float("nan"), 0.0, 1.0, -1.0])
def test_a_threshold_is_a_number_between_0_and_1(threshold):
    with pytest.raises(UserError, match="--threshold"):
        request(threshold=threshold)


def test_the_papers_numbers_stand_beside_ours():
    subject = Subject("run/x", read_loss_file(Path("a.npz")), {"recl_r0.1": 900, "recl_r1.0": 700})
    found = recl_record([[replace(subject, title="x")]], request()).content
    (group,) = found["groups"]
    assert {line["r"]: line["paper"] for line in group["results"]} == {
        0.1: 900,
        0.5: None,
        1.0: 700,
    }


def test_characters_are_shown_in_bits_words_in_perplexity():
    bits = json.dumps({"unit": "bpc"})
    save(Path("c.npz"), settings=bits)
    save(Path("d.npz"), settings=bits, seed=8)
    assert record(("c.npz", "d.npz"))["unit"] == "bpc"
    assert record(("c.npz", "a.npz"))["unit"] == "ppl"


def test_everything_is_written_where_the_question_says():
    asked = request()
    outcome = run_recl(asked)
    assert outcome.path == Path("results") / f"recl-{identity(asked)}" / "recl.json"
    content = json.loads(outcome.path.read_text())
    assert content["groups"] == record()["groups"]
    assert all(path.stat().st_size > 0 for path in outcome.written.paths)
    assert outcome.record.warnings == (
        "r = 0.1 is 100 of 1,000 tokens, fewer than 500: the RECL is uncertain",
    )
    again = run_recl(replace(asked, shares=(0.5,), out=Path("there")))
    assert again.path.parent == Path("there")


def test_another_question_has_another_place():
    asked = request()
    assert identity(asked) == identity(replace(asked, device="cuda", batch_size=3))
    for changes in ({"shares": (0.5,)}, {"threshold": 0.02}, {"tokens": 900}, {"seed": 1}):
        assert identity(replace(asked, **changes)) != identity(asked)


def test_nothing_is_left_behind_by_an_error():
    save(Path("c.npz"), split="valid")
    with pytest.raises(UserError):
        run_recl(request(("a.npz", "c.npz"), out=Path("there")))
    assert not Path("there").exists()
    Path("taken").write_text("a file")
    with pytest.raises(UserError, match=r"taken: .*choose another place with --out"):
        run_recl(request(out=Path("taken")))


def test_rows_of_several_seeds_are_measured_seed_by_seed():
    rows = [{"label": name, "set": {"model.encoding": name}} for name in ("xl", "shaw")]
    write_spec({"train.max_step": 4, "model.n_layer": 1}, rows=rows, seeds=[1, 2, 3])
    runs = plan_of()
    execute_all(runs)
    (runs[0].directory.path.parents[1] / "spec.yaml").write_text(Path("spec.yaml").read_text())
    write_text(Path("long.txt"), words=2000)
    asked = request(("trial/xl", "trial/shaw"), contexts=(2, 4, 8), tokens=900, device="cpu")
    found = run_recl(replace(asked, corpus="long.txt"))
    assert len(found.record.groups) == 3
    for group, seed in zip(found.record.groups, (1, 2, 3), strict=True):
        assert [f"-s{seed}-" in model for model in group.models] == [True, True]
    xl = next(each for each in found.record.seeds if (each.row, each.r) == ("trial/xl", 1.0))
    values = [group.result(group.models[0], 1.0).recl for group in found.record.groups]
    assert xl.recl[0] == pytest.approx(np.mean(values))
    assert xl.recl[1] == pytest.approx(4.302653 * np.std(values, ddof=1) / 3**0.5, rel=1e-5)
    assert "trial/xl, r=1: RECL" in found.written.text
    assert "mean of 3 seeds" in found.written.text


def test_rows_with_other_numbers_of_seeds_do_not_pair(monkeypatch):
    several = {"a": ["a1", "a2"], "b": ["b1", "b2", "b3"]}
    assert list(recl._by_seed(("a", "c"), several)) == [("a1", "c"), ("a2", "c")]
    with pytest.raises(UserError, match="a has 2, b has 3 seeds"):
        list(recl._by_seed(("a", "b"), several))
