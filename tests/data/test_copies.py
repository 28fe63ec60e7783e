"""The corpus `copies`: texts that stand four times, and a test split without any copy."""

import numpy as np
import pytest

from txlbench.config.catalogue import CORPORA
from txlbench.config.run_config import CorpusConfig
from txlbench.data.copies import LENGTHS, TIMES, random_symbols, repeated_texts
from txlbench.data.prepare import prepare
from txlbench.errors import UserError

CONFIG = CorpusConfig(name="copies")


def test_the_corpus_is_what_the_catalogue_says():
    corpus = prepare(CONFIG)  # compares the checksum of what was computed
    facts = CORPORA["copies"]
    assert corpus.tokens == facts.tokens
    assert len(corpus.vocabulary) == facts.vocabulary_size
    assert corpus.warnings == ()


def test_each_length_has_as_many_symbols_and_every_text_stands_four_times():
    symbols, place, counts = repeated_texts(400_000, 1), 0, dict.fromkeys(LENGTHS, 0)
    while place + TIMES * LENGTHS[-1] < len(symbols):
        size = next(n for n in LENGTHS if is_repeated(symbols[place : place + TIMES * n], n))
        counts[size] += TIMES * size
        place += TIMES * size
    shares = np.array([*counts.values()]) / sum(counts.values())
    assert shares == pytest.approx(0.2, abs=0.03)


def is_repeated(symbols, size):
    rows = symbols.reshape(TIMES, size)
    return bool((rows == rows[0]).all())


def test_the_test_split_has_no_copies():
    corpus = prepare(CONFIG)
    for split, is_copied in (("valid", True), ("test", False)):
        ids = corpus.ids(split)[:20_000]
        found = max(float(np.mean(ids[n:] == ids[:-n])) for n in LENGTHS)
        assert (found > 0.1) == is_copied
    drawn = random_symbols(np.random.PCG64(1), 100_000)
    assert np.bincount(drawn) == pytest.approx(100_000 / 26, rel=0.1)


def test_a_file_in_its_place_is_refused(tmp_path):
    with pytest.raises(UserError, match="copies is computed; drop"):
        prepare(CONFIG, from_file=tmp_path)
