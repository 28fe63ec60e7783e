"""What `tune` may say, and the file that tuning writes."""

import pytest

from txlbench.config.grid import expand
from txlbench.config.loading import Document, dump_yaml, parse_yaml
from txlbench.config.search_range import SearchRange, Tuned
from txlbench.errors import UserError

BASE = {"name": "a", "corpus": "enwiki-sample", "model": {"d_model": 32, "n_head": 2}}
RECORD = Tuned(ranges={"train.lr": "0.001 to 0.1 (log)"}, trials=4, seed=1, valid_loss=1.5)


def searched(value, key="train.lr", **more):
    text = dump_yaml({**BASE, **more, "tune": {key: value}})
    return expand(parse_yaml(text, "x.yaml")).search[key]


@pytest.mark.parametrize(
    ("value", "key", "expected", "said"),
    [
        ([1e-4, 3e-3], "train.lr", SearchRange(1e-4, 3e-3, True), "0.0001 to 0.003 (log)"),
        ([1e-3, 3e-3], "train.lr", SearchRange(1e-3, 3e-3), "0.001 to 0.003"),
        ([0.0, 0.5], "model.dropout", SearchRange(0.0, 0.5), "0 to 0.5"),
        ([1, 20], "train.mem_len", SearchRange(1, 20, True), "1 to 20 (log)"),
        ({"low": 1, "high": 20, "log": False}, "train.mem_len", SearchRange(1, 20), "1 to 20"),
        (
            *({"choices": ["xl", "shaw"]}, "model.encoding"),
            *(SearchRange(choices=("xl", "shaw")), "one of xl, shaw"),
        ),
    ],
)
def test_ranges_follow_one_rule(value, key, expected, said):
    found = searched(value, key)
    assert (found, str(found)) == (expected, said)
    assert found.is_whole is (key == "train.mem_len")


@pytest.mark.parametrize(
    ("value", "key", "problem"),
    [
        ([0.1], "train.lr", "no range"),
        ([0.1, 0.2, 0.3], "train.lr", "no range"),
        ([0.2, 0.1], "train.lr", "no range of numbers"),
        ([True, False], "train.recurrence", "no range of numbers"),
        ({"low": 0, "high": 1, "step": 2}, "train.lr", "no range"),
        ({"low": 0.0, "high": 1.0, "log": True}, "train.lr", "log: True"),
        ({"choices": [1]}, "train.lr", "choices"),
        ({"choices": [[1], [2]]}, "model.cutoffs", "choices"),
        (0.1, "train.lr", "no range"),
        ([0.1, 0.2], "lr", "cannot be tuned"),
        ([1, 2], "evaluate.tokens", "cannot be tuned"),
        ([-1.0, 0.1], "train.lr", "-1.0"),
        ([0.1, 0.2], "train.rate", "unknown"),
    ],
)
def test_what_is_no_range_is_refused_with_its_place(value, key, problem):
    with pytest.raises(UserError) as error:
        searched(value, key)
    assert problem in str(error.value)
    assert str(error.value).startswith("x.yaml:")


def test_the_written_file_has_rows_with_their_winners():
    grid = {"train.recurrence": [True, False]}
    raw = {**BASE, "grid": grid, "seeds": [1, 2], "tune": {"train.lr": [1e-3, 0.1]}}
    found = expand(Document("x.yaml", raw))
    first, second = found.lines
    chosen = {first.label: {"train.lr": 0.02}}
    written = found.with_settings(chosen, {first.label: RECORD})
    again = expand(parse_yaml(dump_yaml(dict(written.raw)), "spec.yaml"))
    assert again.lines == written.lines
    assert {"tune", "grid"} & set(written.raw) == set()
    assert [line.configs[0].train.lr for line in again.lines] == [0.02, 0.00025]
    assert again.lines[0].tuned == RECORD
    assert again.lines[1].run_ids == second.run_ids
    assert len(again.lines[0].run_ids) == 2


def tuned(**ranges):
    keys = {"size": "train.batch_size", "chunk": "train.batch_chunk", "rate": "train.lr"}
    tune = {keys[key]: {"choices": value} for key, value in ranges.items()}
    base = {**BASE, "train": {"batch_size": 4}}
    return expand(parse_yaml(dump_yaml({**base, "tune": tune}), "x.yaml"))


def test_a_value_that_only_another_tuned_value_allows_is_tried():
    found = tuned(size=[4, 6], chunk=[1, 3])
    (warning,) = found.warnings
    assert "tune: train.batch_chunk 3 with train.batch_size 4 cannot be" in warning
    assert "such trials count as failed" in warning


def test_values_whose_combination_cannot_be_are_told_before_a_trial():
    (warning,) = tuned(size=[6, 8], chunk=[2, 3], rate=[0.1, 0.2]).warnings
    assert "train.batch_chunk 3 with train.batch_size 8 cannot be" in warning
    assert tuned(size=[6, 12], chunk=[2, 3]).warnings == ()


def test_a_value_that_no_other_tuned_value_allows_is_refused():
    with pytest.raises(UserError, match=r"x\.yaml:\d+: .*batch_chunk"):
        tuned(size=[4, 8], chunk=[1, 3])
