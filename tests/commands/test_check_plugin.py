"""`check FILE.py:NAME` finds what a plug-in breaks, and says which position saw which."""

import pytest

from tests.plugged import forgotten, written
from tests.test_readme import templates
from txlbench.cli.main import cli
from txlbench.commands import check
from txlbench.commands.check import check_plugin
from txlbench.errors import UserError

HEAD = """
import torch
from txlbench.config.catalogue import EncodingEntry, register_encoding
from txlbench.models.positions.encoding import Encoding

class Mine(Encoding):
"""
TAIL = """
register_encoding("mine", EncodingEntry(Mine, exactness="distance"))
"""
FUTURE = """
    has_terms = False

    def scores(self, layer, query_HBTK, key_HBSK, shared):
        '''At distance 37 the key is not the one there, but the one after the query.'''
        scores = super().scores(layer, query_HBTK, key_HBSK, shared).clone()
        queries, keys = scores.shape[-2:]
        for query in range(queries - 1):
            own = keys - queries + query
            if own >= 37:
                leaked = (query_HBTK[:, :, query] * key_HBSK[:, :, own + 1]).sum(-1)
                scores[:, :, query, own - 37] = leaked
        return scores
"""
STREAMS = """
    def add_to_layer(self, layer, hidden_BTD):
        return hidden_BTD + hidden_BTD.mean(0, keepdim=True)
"""
NOISE = """
    def add_to_layer(self, layer, hidden_BTD):
        return hidden_BTD + torch.rand(())
"""
FROM_THE_START = """
    def add_to_layer(self, layer, hidden_BTD):
        place_T = torch.arange(hidden_BTD.shape[1], dtype=hidden_BTD.dtype)
        return hidden_BTD + place_T.sin()[:, None]
"""
SINGLE = """
    def add_to_layer(self, layer, hidden_BTD):
        return hidden_BTD * (2.0 if hidden_BTD.shape[1] == 1 else 1.0)
"""
CACHED = """
    def cached_tables(self, kept, keys, clamp_len, like, queries):
        tables = self.prepare(keys, clamp_len, like)
        from txlbench.models.positions.tables import DistanceTable
        bias = torch.arange(keys + 1, dtype=like.dtype).expand(self.config.n_head, -1)
        return [DistanceTable(bias_HS=-bias)] * self.config.n_layer
"""


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setattr(check, "LONG", 40)
    with forgotten():
        yield


def found(tmp_path, body):
    """Counterexamples of the row with recurrence, by invariant."""
    checked = next(check_plugin(written(tmp_path, HEAD + body + TAIL), "Mine"))
    return {each.invariant: each for each in checked.counterexamples}


def test_a_leak_of_one_position_at_distance_37_is_found_with_that_position(tmp_path):
    examples = found(tmp_path, FUTURE)
    text = examples["future"].text
    assert text.startswith("position 37 saw position 38, 1 ahead: its loss changes with that token")
    assert examples["future"].change > 1e-3
    assert "streams" not in examples


def test_streams_that_mix_are_found_and_are_no_leak_of_the_future(tmp_path):
    examples = found(tmp_path, STREAMS)
    assert examples["streams"].text.startswith("stream 1 saw stream 0: its loss at position 0")
    assert examples.keys() == {"streams"}


@pytest.mark.parametrize(
    ("body", "invariant", "text"),
    [
        (NOISE, "repeats", "reading the same text twice, in evaluation mode, changes the loss"),
        (FROM_THE_START, "segments", "cutting 80 tokens into segments of 40, 37, 1, 1, 1 changes"),
        (
            SINGLE,
            "segments",
            "cutting 80 tokens into segments of 40, 37, 1, 1, 1 changes",
        ),
        (CACHED, "cache", "reading with cached keys and values (mem_len 40) changes the loss"),
    ],
    ids=["noise", "places in the segment", "single tokens", "cache"],
)
def test_other_faults_are_found_with_their_place(tmp_path, body, invariant, text):
    assert found(tmp_path, body)[invariant].text.startswith(text)


def test_a_name_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"mine\.py:Other: no encoding or model of that name"):
        next(check_plugin(written(tmp_path, HEAD + "    pass\n" + TAIL), "Other"))


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        ("{}['boom']", r":10: Mine: KeyError: 'boom'"),
        ("super().scores(*given) + torch.zeros(7, 3)", r":10: Mine: RuntimeError: The size of"),
        ("super().scores(*given) * float('nan')", r": Mine: Diverged: the loss is nan"),
    ],
    ids=["raises", "wrong shape", "nan"],
)
def test_a_class_that_fails_is_refused_in_one_line(tmp_path, scores, why):
    body = f"    has_terms = False\n\n    def scores(self, *given):\n        return {scores}\n"
    with pytest.raises(UserError, match=rf"mine\.py{why}.*; mend the plug-in"):
        found(tmp_path, body)


def test_a_table_of_the_wrong_type_is_told_as_that(tmp_path):
    body = "    def distance_table(self, layer, shared):\n        return 3\n"
    why = r"TypeError: distance_table\(\) gave 3, which is no DistanceTable; mend the plug-in"
    with pytest.raises(UserError, match=why):
        found(tmp_path, body)


def test_templates_have_at_most_forty_lines():
    sizes = {name: len(text.splitlines()) for name, text in templates()}
    assert sizes.keys() == {"slope.py", "mingru.py", "fading.py", "counting.py"}
    assert max(sizes.values()) <= 40


@pytest.mark.full
@pytest.mark.parametrize("name", ["slope.py", "mingru.py", "fading.py"])
def test_templates_keep_every_invariant(name, tmp_path, capsys):
    path = written(tmp_path, dict(templates())[name], name)
    assert cli.main(["check", str(path)], standalone_mode=False) == 0
    assert "BROKEN" not in capsys.readouterr().out


@pytest.mark.full
def test_the_command_says_which_position_saw_which(tmp_path, capsys):
    path = written(tmp_path, HEAD + FUTURE + TAIL)
    assert cli.main(["check", f"{path}:mine"], standalone_mode=False) == 1
    complaint = capsys.readouterr().err
    assert "mine, with recurrence: future: position 37 saw position 38, 1 ahead" in complaint
