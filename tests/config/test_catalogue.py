"""Every name in the catalogue leads to something that exists."""

import pytest

from txlbench.config.catalogue import CORPORA, CORPUS_LOADERS, ENCODINGS, RELATIVE_ENCODINGS, UNITS
from txlbench.models.positions.encoding import Encoding


@pytest.mark.parametrize("name", ["xl", "shaw", "absolute", "al-rfou"])
def test_encodings_load(name: str):
    assert issubclass(ENCODINGS.load(name), Encoding)


@pytest.mark.parametrize("name", CORPUS_LOADERS.names())
def test_corpora_load_and_have_facts(name: str):
    assert callable(CORPUS_LOADERS.load(name))
    assert CORPORA[name].level in UNITS


def test_relative_encodings_are_encodings():
    assert set(ENCODINGS.names()) >= RELATIVE_ENCODINGS
