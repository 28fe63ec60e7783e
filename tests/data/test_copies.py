"""The corpus `copies`: texts that stand four times, and a test split without any copy."""

import numpy as np
import pytest

from txlbench.config.catalogue import CORPORA
from txlbench.config.run_config import CorpusConfig
from txlbench.data.copies import PROCESS, CopyProcess
from txlbench.data.prepare import prepare
from txlbench.errors import UserError

CONFIG = CorpusConfig(name="copies")


def test_the_corpus_is_what_the_catalogue_says():
    corpus = prepare(CONFIG)  # compares the checksum of what was computed
    facts = CORPORA["copies"]
    assert corpus.tokens == facts.tokens
    assert len(corpus.vocabulary) == facts.vocabulary_size == PROCESS.symbols
    assert corpus.warnings == ()


def test_each_length_has_as_many_symbols_and_every_text_stands_four_times():
    symbols, place = PROCESS.repeated(400_000, 1), 0
    counts = dict.fromkeys(PROCESS.lengths, 0)
    while place + 4 * PROCESS.lengths[-1] < len(symbols):
        rest = symbols[place:]
        size = next(n for n in PROCESS.lengths if is_repeated(rest[: 4 * n]))
        counts[size] += 4 * size
        place += 4 * size
    parts = np.array_split([*counts.values()], 5)
    expected = [len(part) / len(counts) for part in parts]
    assert [sum(part) / sum(counts.values()) for part in parts] == pytest.approx(expected, abs=0.03)


def is_repeated(symbols):
    rows = symbols.reshape(4, -1)
    return bool((rows == rows[0]).all())


def test_a_new_symbol_is_none_of_the_half_that_was_drawn_last():
    process = CopyProcess(symbols=8)
    drawn = process.fresh(20_000, 3).tolist()
    assert all(len({*drawn[k : k + 4]}) == 4 for k in range(len(drawn) - 3))
    assert np.bincount(drawn) == pytest.approx(2500, rel=0.1)


def test_the_test_split_has_no_copies():
    corpus = prepare(CONFIG)
    for split, is_copied in (("valid", True), ("test", False)):
        ids = corpus.ids(split)[:20_000]
        found = max(float(np.mean(ids[n:] == ids[:-n])) for n in PROCESS.lengths)
        assert (found > 0.01) if is_copied else found == 0


def test_a_file_in_its_place_is_refused(tmp_path):
    with pytest.raises(UserError, match="copies is computed; drop"):
        prepare(CONFIG, from_file=tmp_path)
