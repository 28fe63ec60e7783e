"""text8 is letters and spaces, without the spaces at the edges of a split."""

import pytest

from txlbench.data.text8 import Text8


@pytest.fixture
def corpus(archive, published, prepared, monkeypatch):
    def corpus(text, sizes):
        path = archive("text8.zip", {"text8": text})
        published("text8", path)
        monkeypatch.setattr(Text8, "sizes", sizes)
        return prepared("text8", path)

    return corpus


def test_the_splits_are_stripped_as_by_the_official_preparation(corpus, texts):
    made = corpus(b" anarchism as a term abuse  ", (10, 10, 8))
    assert texts(made) == ["anarchism", "as a term", "abuse"]
    assert made.tokens == {"train": 9, "valid": 9, "test": 5}


def test_the_vocabulary_is_that_of_all_splits_by_frequency(corpus):
    vocabulary = corpus(b"bb a a zz", (3, 3, 3)).vocabulary
    assert vocabulary.symbols == ("b", "a", "z", " ")
    assert vocabulary.level == "char"


def test_the_vocabulary_of_letters_and_space_has_27_symbols(corpus, published):
    letters = b"the quick brown fox jumps over a lazy dog "
    assert len(corpus(letters * 3, (42, 42, 42)).vocabulary) == 27
