"""States are written as words, and bad ends are told from others."""

import json

from txlbench.records.states import RunState


def test_a_state_is_its_word_in_json():
    assert json.dumps(RunState.FINISHED) == '"finished"'
    assert RunState("diverged") is RunState.DIVERGED


def test_only_failed_and_diverged_are_bad():
    assert {state for state in RunState if state.is_bad} == {RunState.FAILED, RunState.DIVERGED}
