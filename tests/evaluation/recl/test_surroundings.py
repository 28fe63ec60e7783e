"""What bears on a RECL: its company, other choices of step and threshold, and ECL."""

from dataclasses import replace

import numpy as np
import pytest

from tests.evaluation.recl.groups import from_losses, stopping_at_300
from tests.evaluation.recl.simulated import losses as simulated
from txlbench.evaluation.recl.group_report import group_report, sensitivity, subgroups
from txlbench.evaluation.recl.metric import ReclTerms, effective_context_length
from txlbench.evaluation.recl.null import blocks_of, draw_signs, measure

TERMS = ReclTerms()


def group_of(models, gains=(0.03, 0.02, 0.01, 0.0)):
    return from_losses(simulated(np.random.default_rng(models), 1000, gains, models))


@pytest.mark.parametrize(("models", "number"), [(1, 0), (2, 2), (3, 6), (4, 14), (5, 30), (6, 56)])
def test_every_smaller_group_of_up_to_four_models(models, number):
    lines = subgroups(group_of(models), TERMS)
    groups = {tuple(line.models) for line in lines}
    assert len(groups) == number
    assert all(1 <= len(each) <= 4 and each != tuple("abcdef"[:models]) for each in groups)
    assert len(lines) == 3 * sum(map(len, groups))


def test_a_subgroup_is_measured_as_a_group_of_its_own():
    group = group_of(3)
    of_two = from_losses(group.losses[[0, 2]])
    expected = [line.recl for line in group_report(of_two, TERMS).results]
    found = [line.recl for line in subgroups(group, TERMS) if line.models == ("a", "c")]
    assert found == expected


def lines_for(group, terms=TERMS):
    blocks = blocks_of(group.positions, group.losses)
    signs = draw_signs(np.random.default_rng(0), blocks.count)
    measures = measure(group.losses, terms.shares, blocks, signs)
    return sensitivity(group, terms, measures, blocks, signs)


def test_the_model_trained_with_resets_takes_its_models_place():
    group, other = group_of(2), group_of(1, gains=(0.05, 0.0, 0.0, 0.0)).losses[0]
    with_resets = replace(group, with_resets={"b": other})
    found = [each for each in lines_for(with_resets) if each.setting == "trained with resets"]
    assert {each.model for each in found} == {"b"}
    replaced = from_losses(np.stack([group.losses[0], other]))
    expected = [each for each in group_report(replaced, TERMS).results if each.model == "b"]
    assert [each.recl for each in found] == [each.recl for each in expected]
    assert [each.recl_above_null for each in found] == [200, 200, 200]
    assert [each for each in lines_for(with_resets) if each not in found] == lines_for(group)


def test_settings_that_are_varied():
    settings = dict.fromkeys(line.setting for line in lines_for(group_of(2)))
    assert list(settings) == [
        *("step 200", "step 300", "first context 200", "first context 300"),
        *("threshold 0.005", "threshold 0.02"),
    ]


def test_lists_too_short_are_not_varied():
    settings = {line.setting for line in lines_for(group_of(1, gains=[0.1]))}
    assert settings == {"threshold 0.005", "threshold 0.02"}


def test_uneven_contexts_have_no_step():
    losses = simulated(np.random.default_rng(0), 1000, [0.1, 0.1])
    lines = lines_for(from_losses(losses, contexts=(16, 32, 100)))
    assert {line.setting for line in lines} >= {"1 context in 2", "first context 32"}


@pytest.mark.parametrize(
    ("setting", "rows", "threshold"),
    [
        ("step 200", [0, 2, 4], 0.01),
        ("first context 200", [1, 2, 3, 4], 0.01),
        ("threshold 0.02", [0, 1, 2, 3, 4], 0.02),
        ("threshold 0.005", [0, 1, 2, 3, 4], 0.005),
    ],
)
def test_a_variation_is_what_its_own_call_gives(setting, rows, threshold):
    group = group_of(2)
    contexts = tuple(group.contexts[row] for row in rows)
    alone = from_losses(group.losses[:, rows], contexts)
    expected = group_report(alone, ReclTerms(threshold=threshold)).results
    found = [line for line in lines_for(group) if line.setting == setting]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.recl == theirs.recl


def test_a_gain_that_stops_at_300_does_so_from_any_first_context():
    lines = lines_for(stopping_at_300())
    found = {(line.setting, line.recl, line.recl_above_null) for line in lines}
    assert ("first context 200", 300, 300) in found
    assert ("first context 300", 300, 300) in found
    assert ("threshold 0.005", 300, 300) in found


@pytest.mark.parametrize(
    ("perplexities", "expected"),
    [
        ([120, 110, 101, 100], 400),  # 1 % above is not less than 1 % above
        ([120, 110, 100.9, 100], 300),
        ([100.5, 100, 100, 100], 100),
        ([100.5, 110, 100, 100.2], 300),  # from which on
        ([99, 110, 100, 100], 100),  # the best, not the longest
        ([110, 95, 98, 100], 200),
        ([90, 95, 98, 100], 100),
    ],
)
def test_effective_context_length(perplexities, expected):
    losses = np.log(perplexities)[:, None] + np.array([-0.5, 0.5])
    assert effective_context_length(losses, (100, 200, 300, 400), 0.01 - 1e-12) == expected
