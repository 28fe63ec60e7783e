"""Every name in the catalogue leads to something that exists."""

import pytest

from txlbench.config.catalogue import (
    CORPORA,
    ENCODINGS,
    UNITS,
    EncodingEntry,
    load_class,
    register_encoding,
)
from txlbench.errors import UserError
from txlbench.models.positions.encoding import Encoding


@pytest.mark.parametrize("name", list(ENCODINGS))
def test_encodings_load(name: str):
    assert issubclass(load_class(ENCODINGS[name].target), Encoding)


@pytest.mark.parametrize("name", CORPORA)
def test_corpora_load_under_their_names(name: str):
    source = load_class(CORPORA[name].target)()
    assert (source.name, source.level) == (name, CORPORA[name].level)
    assert source.level in UNITS


def test_a_taken_name_is_refused_and_the_same_entry_accepted_again():
    register_encoding("xl", ENCODINGS["xl"])
    with pytest.raises(UserError, match="encoding 'xl' is already registered"):
        register_encoding("xl", EncodingEntry("tests.models:Other"))
    assert ENCODINGS["xl"].target == "txlbench.models.positions.xl:XLEncoding"
