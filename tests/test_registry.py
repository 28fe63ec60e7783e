"""Names load what they stand for, lazily; a wrong one gets the nearest spelling."""

import sys

import pytest

from txlbench.errors import UserError
from txlbench.registry import Registry, suggestion


def registry() -> Registry:
    return Registry("shape", {"path": "pathlib:Path", "fraction": "fractions:Fraction"})


def test_a_name_loads_its_class():
    from pathlib import Path

    assert registry().load("path") is Path


def test_nothing_is_imported_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "this", raising=False)
    names = Registry("shape", {"zen": "this:s"})
    assert "zen" in names
    assert names.names() == ["zen"]
    assert "this" not in sys.modules


def test_an_unknown_name_gets_the_nearest_spelling():
    with pytest.raises(UserError) as caught:
        registry().load("pahth")
    expected = "unknown shape 'pahth'; did you mean 'path'? known: path, fraction"
    assert str(caught.value) == expected
    assert suggestion("zzz", ["path"]) == "known: path"
