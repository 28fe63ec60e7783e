"""Names are the shortest suffix that no other has."""

from pathlib import Path

import pytest

from tests.runs.trial import execute_all, plan_of, write_spec
from txlbench.commands.names import find_run, short_titles, split_models
from txlbench.errors import UserError


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["results/quick/runs/a", "results/quick/runs/b"], ["a", "b"]),
        (["x/a", "y/a", "b"], ["x/a", "y/a", "b"]),
        (["a", "x/a"], ["a", "x/a"]),
        (["q/x/a", "q/y/a", "q/y/b"], ["x/a", "y/a", "b"]),
        (["alone/at/home/"], ["home"]),
    ],
)
def test_titles_are_the_shortest_suffixes(names, expected):
    assert short_titles(names) == expected


LABELS = ("XL w/o recurrence", "XL: deep", "memory 96, resets", "memory 96")


@pytest.fixture
def experiment():
    rows = [{"label": label, "set": {"train.lr": 0.01 * (n + 1)}} for n, label in enumerate(LABELS)]
    write_spec({"train.max_step": 3}, rows=rows)
    runs = plan_of()
    execute_all(runs)
    (runs[0].directory.path.parents[1] / "spec.yaml").write_text(Path("spec.yaml").read_text())


def test_labels_are_taken_in_full(experiment):
    text = "trial/memory 96, resets,trial/memory 96 , trial/XL: deep"
    assert split_models(text) == ("trial/memory 96, resets", "trial/memory 96", "trial/XL: deep")
    assert split_models("a,hf:b,c.npz") == ("a", "hf:b", "c.npz")
    for label in LABELS:
        assert find_run(f"trial/{label}").read_label() == label
    with pytest.raises(UserError, match="trial/memory 97: no such row or run"):
        find_run("trial/memory 97")


@pytest.mark.parametrize("text", ["", "a,,b", "a,"])
def test_a_list_with_nothing_between_commas_is_refused(text):
    with pytest.raises(UserError, match="names no model somewhere"):
        split_models(text)


def test_titles_keep_what_labels_contain(experiment):
    references = [f"trial/{label}" for label in LABELS]
    assert short_titles(references) == list(LABELS)
    assert short_titles(["spec.yaml:XL w/o recurrence"]) == ["XL w/o recurrence"]


@pytest.mark.parametrize("name", ["x" * 300, "trial/" + "y" * 300, "a\0b", "trial/a\0b"])
def test_names_that_no_file_can_have_are_no_models(experiment, name):
    with pytest.raises(UserError, match="no such"):
        find_run(name)
