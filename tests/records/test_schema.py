"""States are written as words, and bad ends are told from others."""

import json

from txlbench.records.schema import RunState


def test_a_state_is_its_word_in_json():
    assert json.dumps(RunState.FINISHED) == '"finished"'
    assert RunState("diverged") is RunState.DIVERGED


def test_bad_is_what_ended_without_numbers_or_cannot_be_read():
    bad = {RunState.FAILED, RunState.DIVERGED, RunState.DAMAGED}
    assert {state for state in RunState if state.is_bad} == bad
